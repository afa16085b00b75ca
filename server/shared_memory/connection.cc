#include "server/shared_memory/connection.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "server/shared_memory/device_region.h"
#include "server/shared_memory/memfd.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {

using grpc::StatusCode;

namespace {

Refusal NoDescriptorLeft() {
  return {StatusCode::RESOURCE_EXHAUSTED,
          "the server has no file descriptor left"};
}

}  // namespace

Connection::Connection(FileDescriptor socket, const ConnectionContext& context)
    : socket_(std::move(socket)), context_(context), last_used_(context.now()) {
  context_.log->Event(spdlog::level::debug, "shared_memory_connected");
}

Connection::~Connection() {
  for (const auto& [handle, owned] : regions_) {
    context_.registry->Remove(handle);
  }
  context_.log->Event(spdlog::level::debug, "shared_memory_disconnected",
                      {{"regions", regions_.size()}, {"bytes", bytes_}});
  // Files that it sent and that were not received are closed with it.
  context_.closer->Close(std::move(other_files_), std::move(socket_));
}

bool Connection::TakePacket() {
  Packet packet;
  const Received received = ReceivePacket(socket_.get(), &packet);
  if (received == Received::kNothing) return true;
  last_used_ = context_.now();
  Reply reply{.packet = "", .ends = true};
  if (received == Received::kPacket) reply = Handle(packet);
  for (FileDescriptor& descriptor : packet.descriptors) {
    if (!CanHaveSeals(descriptor.get())) {
      other_files_.push_back(std::move(descriptor));
    }
  }
  // Closes the other descriptors before the answer is sent.
  packet.descriptors.clear();
  if (received == Received::kEnd || !SendPacket(socket_.get(), reply.packet) ||
      reply.ends) {
    return false;
  }
  if (!other_files_.empty()) {
    closing_ = context_.closer->Close(std::exchange(other_files_, {}));
  }
  return true;
}

bool Connection::IsIdle() const {
  return regions_.empty() && HeldAfterRelease() == 0;
}

int64_t Connection::HeldAfterRelease() const {
  return std::count_if(
      released_.begin(), released_.end(),
      [](const auto& entry) { return !entry.second.expired(); });
}

Connection::Reply Connection::Handle(const Packet& packet) {
  ControlRequest request;
  std::string problem = ParseControlRequest(packet.bytes(), &request);
  using Operation = ControlRequest::Operation;
  const bool brings_descriptors =
      request.operation == Operation::kRegister ||
      request.operation == Operation::kRegisterParts;
  if (problem.empty() && !brings_descriptors &&
      (!packet.descriptors.empty() || packet.lost_descriptors)) {
    problem = "a register of a memfd or of parts alone brings descriptors";
  }
  if (!problem.empty()) {
    return Refused({StatusCode::INVALID_ARGUMENT, problem}, /*ends=*/true);
  }
  switch (request.operation) {
    case Operation::kRegister:
      return Register(request, packet);
    case Operation::kRegisterDevice:
    case Operation::kRegisterParts:
      return RegisterDevice(request, packet);
    case Operation::kRelease:
      break;
  }
  return Release(request.handle);
}

Connection::Reply Connection::Refused(const Refusal& refusal, bool ends) {
  return {Refuse(refusal, context_), ends};
}

Connection::Reply Connection::Register(const ControlRequest& request,
                                       const Packet& packet) {
  if (packet.descriptors.empty() && packet.lost_descriptors) {
    return Refused(NoDescriptorLeft());
  }
  if (packet.descriptors.size() != 1 || packet.lost_descriptors) {
    return Refused({StatusCode::INVALID_ARGUMENT,
                    "a register brings one descriptor, no more and no less"},
                   /*ends=*/true);
  }
  Refusal refusal = LimitProblem(request.size);
  if (refusal.code != StatusCode::OK) return Refused(refusal);
  std::shared_ptr<const Region> region = MapRegion(
      packet.descriptors[0], request.size, request.access, context_.admission,
      context_.backend, context_.counts, &refusal);
  if (region == nullptr) return Refused(refusal);

  const int64_t size = region->size();
  return Add(std::move(region), size);
}

Connection::Reply Connection::RegisterDevice(const ControlRequest& request,
                                             const Packet& packet) {
  // Some of them would be other memory than the client means.
  if (packet.lost_descriptors) return Refused(NoDescriptorLeft());
  std::vector<int> parts;
  parts.reserve(packet.descriptors.size());
  for (const FileDescriptor& part : packet.descriptors) {
    parts.push_back(part.get());
  }
  if (parts.empty() &&
      request.operation == ControlRequest::Operation::kRegisterParts) {
    return Refused({StatusCode::INVALID_ARGUMENT,
                    "a register of parts brings a descriptor for each"},
                   /*ends=*/true);
  }
  Refusal refusal = LimitProblem(/*host_bytes=*/0);
  if (refusal.code != StatusCode::OK) return Refused(refusal);
  std::shared_ptr<const Region> region = OpenDeviceRegion(
      request, parts, context_.backend, context_.counts, &refusal);
  if (region == nullptr) return Refused(refusal);
  return Add(std::move(region), /*host_bytes=*/0);
}

Connection::Reply Connection::Add(std::shared_ptr<const Region> region,
                                  int64_t host_bytes) {
  Owned owned{host_bytes, region->open()};
  const std::optional<RegionHandle> handle =
      context_.registry->Add(std::move(region));
  if (!handle) {
    return Refused({StatusCode::INTERNAL, "the server has no random numbers"});
  }
  regions_.emplace(*handle, std::move(owned));
  bytes_ += host_bytes;
  return {SerializeAnswer(*handle)};
}

Connection::Reply Connection::Release(const RegionHandle& handle) {
  std::weak_ptr<const void> open;
  if (const auto found = regions_.find(handle); found != regions_.end()) {
    open = std::move(found->second.open);
    bytes_ -= found->second.host_bytes;
    regions_.erase(found);
    context_.registry->Remove(handle);
  } else if (const auto again = released_.find(handle);
             again != released_.end()) {
    open = again->second;
  } else {
    // The answer must not reveal whether another connection has the handle.
    return Refused({StatusCode::NOT_FOUND,
                    "this connection has no region with this handle"});
  }
  const bool in_use = !open.expired();
  if (in_use) {
    released_.insert_or_assign(handle, std::move(open));
  } else {
    released_.erase(handle);
  }
  // Drops entries of clients that never returned.
  if (static_cast<int64_t>(released_.size()) > context_.max_regions) {
    std::erase_if(released_,
                  [](const auto& entry) { return entry.second.expired(); });
  }
  return {SerializeReleased(in_use)};
}

Refusal Connection::LimitProblem(uint64_t host_bytes) const {
  // Device memory that only requests hold counts too, because no budget of
  // bytes bounds it.
  if (static_cast<int64_t>(regions_.size()) + HeldAfterRelease() >=
      context_.max_regions) {
    return {StatusCode::RESOURCE_EXHAUSTED,
            fmt::format("this connection has {} regions already, the most that "
                        "one may have",
                        context_.max_regions)};
  }
  if (host_bytes > static_cast<uint64_t>(context_.max_bytes - bytes_)) {
    return {StatusCode::RESOURCE_EXHAUSTED,
            fmt::format("with {} bytes more than the {} that it has, this "
                        "connection would share more than {}",
                        host_bytes, bytes_, context_.max_bytes)};
  }
  return {};
}

std::string Refuse(const Refusal& refusal, const ConnectionContext& context) {
  *context.errors += 1;
  nlohmann::ordered_json fields = {{"code", static_cast<int>(refusal.code)},
                                   {"message", refusal.message}};
  // Clients must not flood the log, however often they connect.
  const std::optional<int64_t> held_back =
      context.warnings->Take(context.now());
  if (held_back.value_or(0) > 0) fields["warnings_held_back"] = *held_back;
  context.log->Event(held_back ? spdlog::level::warn : spdlog::level::debug,
                     "shared_memory_refused", fields);
  return SerializeAnswer(refusal);
}

}  // namespace counterweight::server
