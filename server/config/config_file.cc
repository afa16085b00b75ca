#include "server/config/config_file.h"

#include <exception>
#include <set>
#include <string_view>
#include <utility>

#include "server/base/config_error.h"
#include "server/base/small_file.h"
#include "server/engine/names.h"
#include "spdlog/fmt/fmt.h"
#include "yaml-cpp/yaml.h"

namespace counterweight::server {
namespace {

// A scalar without a tag of its own.
bool IsPlain(const YAML::Node& node) {
  return node.IsScalar() &&
         (node.Tag().empty() || node.Tag() == "?" || node.Tag() == "!");
}

// Reads the value of one key, or returns what is wrong with it.
std::string ReadValue(const Flag& flag, const YAML::Node& node,
                      std::string* value) {
  if (node.IsNull()) {
    return "has no value; \"\" is the empty one";
  }
  if (IsPlain(node)) {
    *value = node.Scalar();
    return "";
  }
  if (!flag.is_list()) return "must be a single value";
  if (!node.IsSequence()) return "must be a single value or a list of them";
  for (const YAML::Node& element : node) {
    if (!IsPlain(element)) return "must be a list of single values";
    if (!value->empty()) *value += ',';
    *value += element.Scalar();
  }
  return node.size() == 0 ? "must not be an empty list" : "";
}

// Reads the mapping. The place of what is wrong is in *line, which counts
// from 1.
std::string ReadMapping(const std::string& path, const YAML::Node& root,
                        int* line, std::vector<Setting>* settings) {
  if (!root.IsDefined() || root.IsNull()) return "";
  *line = root.Mark().line + 1;
  if (!root.IsMap()) return "must be a mapping of flags to values";
  const std::vector<std::string_view> names = FlagNames();
  std::set<std::string> seen;
  for (const auto& entry : root) {
    *line = entry.first.Mark().line + 1;
    if (!IsPlain(entry.first)) return "a key must be the name of a flag";
    const std::string& name = entry.first.Scalar();
    const Flag* const flag = FindFlag(name);
    if (flag == nullptr) {
      const std::string_view nearest = NearestName(name, names);
      return fmt::format("unknown key {}{}", Printable(Quote(name)),
                         nearest.empty()
                             ? std::string("; see --help")
                             : fmt::format(": did you mean {}?", nearest));
    }
    if (!seen.insert(name).second) return name + " comes twice";
    Setting setting{flag, "", Source::kFile,
                    fmt::format("{}:{}: {}", path, *line, name)};
    const std::string wrong = ReadValue(*flag, entry.second, &setting.value);
    if (!wrong.empty()) return Concat(name, ": ", wrong);
    settings->push_back(std::move(setting));
  }
  return "";
}

}  // namespace

std::string ReadConfigFile(const std::string& path,
                           std::vector<Setting>* settings) {
  const absl::StatusOr<std::string> text = ReadSmallFile(path);
  if (!text.ok()) {
    return fmt::format("--config={}: {}", Printable(path),
                       MessageOf(text.status()));
  }
  int line = 1;
  std::string wrong;
  try {
    // Otherwise yaml-cpp would take UTF-16 and UTF-32 too.
    if (text->find('\0') != text->npos || text->starts_with("\xff\xfe") ||
        text->starts_with("\xfe\xff")) {
      return fmt::format("{}: must be UTF-8 text", Printable(path));
    }
    const std::vector<YAML::Node> documents = YAML::LoadAll(*text);
    if (documents.size() > 1) {
      line = documents[1].Mark().line + 1;
      wrong = "must be a single document";
    } else if (!documents.empty()) {
      wrong = ReadMapping(path, documents.front(), &line, settings);
    }
  } catch (const YAML::Exception& error) {
    line = error.mark.line + 1;
    wrong = "is no YAML: " + Printable(error.msg);
  }
  if (wrong.empty()) return "";
  return fmt::format("{}:{}: {}", Printable(path), line, wrong);
}

}  // namespace counterweight::server
