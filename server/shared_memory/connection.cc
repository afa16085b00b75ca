#include "server/shared_memory/connection.h"

#include <optional>
#include <string>
#include <utility>

#include "spdlog/fmt/fmt.h"

namespace counterweight::server {

using grpc::StatusCode;

Connection::Connection(FileDescriptor socket, const ConnectionContext& context)
    : socket_(std::move(socket)), context_(context) {
  context_.log->Event(spdlog::level::debug, "shared_memory_connected");
}

Connection::~Connection() {
  for (const auto& [handle, size] : sizes_) context_.registry->Remove(handle);
  context_.log->Event(spdlog::level::debug, "shared_memory_disconnected",
                      JsonObject()
                          .Add("regions", static_cast<int64_t>(sizes_.size()))
                          .Add("bytes", bytes_));
}

bool Connection::TakePacket() {
  Packet packet;
  switch (ReceivePacket(socket_.get(), &packet)) {
    case Received::kNothing:
      return true;
    case Received::kEnd:
      return false;
    case Received::kPacket:
      break;
  }
  const Reply reply = Handle(std::move(packet));
  return SendPacket(socket_.get(), reply.packet) && !reply.ends;
}

Connection::Reply Connection::Handle(Packet packet) {
  ControlRequest request;
  std::string problem = ParseControlRequest(packet.bytes(), &request);
  const bool registers =
      request.operation == ControlRequest::Operation::kRegister;
  if (problem.empty() && !registers && packet.num_descriptors > 0) {
    problem = "a release brings no descriptor";
  }
  if (!problem.empty()) {
    return Refused({StatusCode::INVALID_ARGUMENT, problem}, /*ends=*/true);
  }
  return registers ? Register(request, std::move(packet))
                   : Release(request.handle);
}

Connection::Reply Connection::Refused(const Refusal& refusal, bool ends) {
  // One warning for each connection, or a client could flood the log.
  const auto level = warned_ ? spdlog::level::debug : spdlog::level::warn;
  warned_ = true;
  return {Refuse(refusal, level, context_), ends};
}

Connection::Reply Connection::Register(const ControlRequest& request,
                                       Packet packet) {
  if (packet.num_descriptors == 0 && packet.lost_descriptors) {
    return Refused({StatusCode::RESOURCE_EXHAUSTED,
                    "the server has no file descriptor left"});
  }
  if (packet.num_descriptors != 1 || packet.lost_descriptors) {
    return Refused({StatusCode::INVALID_ARGUMENT,
                    "a register brings one descriptor, no more and no less"},
                   /*ends=*/true);
  }
  Refusal refusal = LimitProblem(request.size);
  if (refusal.code != StatusCode::OK) return Refused(refusal);
  std::shared_ptr<const Region> region =
      MapRegion(packet.descriptors[0], request.size, request.access,
                context_.admission, context_.counts, &refusal);
  if (region == nullptr) return Refused(refusal);

  const int64_t size = region->size();
  const std::optional<RegionHandle> handle =
      context_.registry->Add(std::move(region));
  if (!handle) {
    return Refused({StatusCode::INTERNAL, "the server has no random numbers"});
  }
  sizes_.emplace(*handle, size);
  bytes_ += size;
  return {SerializeAnswer(*handle)};
}

Connection::Reply Connection::Release(const RegionHandle& handle) {
  const auto found = sizes_.find(handle);
  if (found == sizes_.end()) {
    // Whether another connection has it is nobody's business.
    return Refused({StatusCode::NOT_FOUND,
                    "this connection has no region with this handle"});
  }
  context_.registry->Remove(handle);
  bytes_ -= found->second;
  sizes_.erase(found);
  return {SerializeAnswer(RegionHandle{})};
}

Refusal Connection::LimitProblem(uint64_t size) const {
  if (static_cast<int64_t>(sizes_.size()) >= context_.max_regions) {
    return {StatusCode::RESOURCE_EXHAUSTED,
            fmt::format("this connection has {} regions already, the most that "
                        "one may have",
                        context_.max_regions)};
  }
  if (size > static_cast<uint64_t>(context_.max_bytes - bytes_)) {
    return {StatusCode::RESOURCE_EXHAUSTED,
            fmt::format("with {} bytes more than the {} that it has, this "
                        "connection would share more than {}",
                        size, bytes_, context_.max_bytes)};
  }
  return {};
}

std::string Refuse(const Refusal& refusal, spdlog::level::level_enum level,
                   const ConnectionContext& context) {
  *context.errors += 1;
  context.log->Event(level, "shared_memory_refused",
                     JsonObject()
                         .Add("code", static_cast<int64_t>(refusal.code))
                         .Add("message", refusal.message));
  return SerializeAnswer(refusal);
}

}  // namespace counterweight::server
