// One server of one scenario: its address, when it listens, its connections.
// Members of a scenario's "server":
//   info            the answer of GetServerInfo; "sharedMemorySocket": "absent"
//                   names a socket that is not there
//   rpcs.RPC        see scripted_service.h
//   tls, token      speaks TLS: certificate, and client_authority if clients
//                   need one; the token that each call needs
//   addresses, absent_address, dns
//                   the target is a list of so many addresses; one more without
//                   a server; the name of this machine
//   unix, memory    listens on a Unix socket; shares memory (refusals: how many
//                   registrations it refuses; silent)
//   listen          periods in seconds during which it listens:
//                   [[0, 0.6], [1.5]]
//   cut             the first connection breaks after so many bytes up or down,
//                   or before_first_call; freeze: it stays open, and nothing
//                   reads it; unix: the target is a Unix socket
#ifndef COUNTERWEIGHT_TESTS_CONFORMANCE_SERVER_SCRIPTED_SERVER_H_
#define COUNTERWEIGHT_TESTS_CONFORMANCE_SERVER_SCRIPTED_SERVER_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "grpcpp/server.h"
#include "nlohmann/json.hpp"
#include "tests/client_cpp/cut_connection.h"
#include "tests/conformance/server/memory_socket.h"
#include "tests/conformance/server/recorder.h"
#include "tests/conformance/server/scripted_service.h"

namespace counterweight::conformance {

using nlohmann::json;

// Listens from the constructor's end, unless the scenario sets a later time.
class ScriptedServer {
 public:
  // `script` is the member "server" of a scenario; sockets go to
  // `folder`/`name`.*. Throws std::runtime_error if it cannot listen.
  ScriptedServer(const json& script, const std::string& folder,
                 const std::string& name);
  ~ScriptedServer();

  // The address for the client.
  const std::string& target() const { return target_; }
  // Stops, and returns everything that it saw.
  json Close();

 private:
  // Returns an address with a port that stays this server's.
  std::string Reserve();
  void Listen();
  void Stop();
  // Listens during the periods of the member "listen".
  void Schedule(const std::stop_token& stop);

  const json script_;
  // Where it listens.
  std::vector<std::string> addresses_;
  std::string target_;
  // Keep the ports while the server does not listen.
  std::vector<int> reserved_;
  Recorder recorder_;
  std::unique_ptr<MemorySocket> memory_;
  std::unique_ptr<ScriptedService> service_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  // Guarded by mutex_.
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<client::CutConnection> cut_;
  std::jthread schedule_;
};

}  // namespace counterweight::conformance

#endif  // COUNTERWEIGHT_TESTS_CONFORMANCE_SERVER_SCRIPTED_SERVER_H_
