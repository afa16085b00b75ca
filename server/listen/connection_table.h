// Connections by peer.
#ifndef COUNTERWEIGHT_SERVER_LISTEN_CONNECTION_TABLE_H_
#define COUNTERWEIGHT_SERVER_LISTEN_CONNECTION_TABLE_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "server/base/file_descriptor.h"

namespace counterweight::server {

// Watches connections that others own, by a duplicate of each descriptor: an
// end of the connection, by either side, shows there. A full table makes room
// for a peer that has fewer connections than another: the newest connection of
// the peer that has most is shut down. For one thread, but for size().
class ConnectionTable {
 public:
  explicit ConnectionTable(int64_t max_connections);

  // Readable when Clean has something to do.
  int descriptor() const { return epoll_.get(); }

  // Adds a connection of `peer` by a name of its own; "" has none. False if it
  // is one too many or cannot be watched; the caller must close it.
  bool Add(int socket, const std::string& peer, const std::string& name);

  // Shuts the connection of the name down, and returns its peer; nothing if
  // there is none.
  std::optional<std::string> Close(const std::string& name);

  // Ends the direction to the client in every connection, after what was
  // written.
  void EndWriting() const;

  // Forgets connections that have ended.
  void Clean();

  int64_t size() const { return size_; }

 private:
  struct Watched {
    FileDescriptor duplicate;
    std::string peer;
    std::string name;
  };
  // Connections of each peer in the order of arrival.
  using Peers = std::map<std::string, std::map<uint64_t, int>>;

  bool MakeRoom(const std::string& peer);
  void ShutDown(uint64_t id);
  void Forget(uint64_t id);

  const int64_t max_connections_;
  const FileDescriptor epoll_;
  std::map<uint64_t, Watched> connections_;
  Peers peers_;
  std::map<std::string, uint64_t> names_;
  uint64_t next_id_ = 1;
  std::atomic<int64_t> size_ = 0;
};

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_LISTEN_CONNECTION_TABLE_H_
