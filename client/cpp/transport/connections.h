// The sockets of a channel.
#ifndef COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_CONNECTIONS_H_
#define COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_CONNECTIONS_H_

#include <sys/types.h>

#include <memory>
#include <mutex>
#include <vector>

#include "grpcpp/support/channel_arguments.h"

namespace counterweight::client {

// Knows the sockets that gRPC opens for a channel, and ends a connection if its
// peer reads nothing. gRPC has no function for that, and without it a call ends
// only after its write to the connection, whatever its deadline
// (https://github.com/grpc/grpc/issues/28434).
class Connections {
 public:
  // The channel that is made with `arguments` reports its sockets to
  // `connections`.
  static void Watch(const std::shared_ptr<Connections>& connections,
                    grpc::ChannelArguments* arguments);

  // A socket that is not connected yet.
  void Add(int fd);
  // Ends each connection that takes no byte for a moment. Their calls end.
  void CutStuck();

 private:
  // A number is taken again when a socket is closed, so it is not enough.
  struct Socket {
    int fd;
    ino_t inode;
  };

  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<Socket> sockets_;
};

}  // namespace counterweight::client

#endif  // COUNTERWEIGHT_CLIENT_CPP_TRANSPORT_CONNECTIONS_H_
