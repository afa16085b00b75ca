// conformance_server FOLDER: opens and closes scripted servers, one JSON object
// per line on stdin and stdout; README.md has the protocol.
#include <cstdio>
#include <exception>
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "nlohmann/json.hpp"
#include "tests/conformance/server/scripted_server.h"

namespace counterweight::conformance {
namespace {

using nlohmann::json;

class Control {
 public:
  explicit Control(std::string folder) : folder_(std::move(folder)) {}

  json Answer(const json& command) {
    if (command.contains("open")) {
      const std::string name = std::to_string(next_++);
      auto server =
          std::make_unique<ScriptedServer>(command["open"], folder_, name);
      json answer = {{"server", name}, {"target", server->target()}};
      servers_[name] = std::move(server);
      return answer;
    }
    const auto found = servers_.find(command.at("close"));
    if (found == servers_.end()) return {{"error", "no such server"}};
    json report = found->second->Close();
    servers_.erase(found);
    return report;
  }

 private:
  const std::string folder_;
  int next_ = 0;
  std::map<std::string, std::unique_ptr<ScriptedServer>> servers_;
};

}  // namespace
}  // namespace counterweight::conformance

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: conformance_server FOLDER\n", stderr);
    return 2;
  }
  counterweight::conformance::Control control(argv[1]);
  std::string line;
  while (std::getline(std::cin, line)) {
    nlohmann::json answer;
    try {
      answer = control.Answer(nlohmann::json::parse(line));
    } catch (const std::exception& error) {
      answer = {{"error", error.what()}};
    }
    std::cout << answer.dump() << std::endl;
  }
  return 0;
}
