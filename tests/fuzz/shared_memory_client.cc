#include "tests/fuzz/shared_memory_client.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <iterator>
#include <string_view>

#include "spdlog/sinks/null_sink.h"

namespace counterweight::fuzz {
namespace {

using server::ControlRequest;
using server::FileDescriptor;
using server::RegionHandle;

constexpr int64_t kPage = 4096;
constexpr int64_t kMaxRegions = 3;
constexpr int64_t kAdmittedBytes = 12 * kPage;
// Limits of one connection: within the admitted bytes, and beyond.
constexpr int64_t kFewBytes = 8 * kPage;
constexpr int64_t kManyBytes = 16 * kPage;
// Size of the device's memory.
constexpr int64_t kDeviceBytes = 3 * kPage;
constexpr size_t kMaxAnswerBytes = server::kControlPacketBytes + 200;

template <typename T>
void Put(T value, size_t at, std::string* packet) {
  std::memcpy(packet->data() + at, &value, sizeof(value));
}

std::string_view Text(const RegionHandle& handle) {
  return {reinterpret_cast<const char*>(handle.data()), handle.size()};
}

int64_t PagesOf(int64_t size) { return (size + kPage - 1) / kPage; }

SharedFile MakeFile(Input* input) {
  SharedFile file;
  const uint8_t kind = input->TakeByte();
  if (kind % 16 == 0) {
    file.descriptor = FileDescriptor(open("/dev/null", O_RDWR | O_CLOEXEC));
    return file;
  }
  file.descriptor =
      FileDescriptor(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  const int fd = file.descriptor.get();
  // Whole pages and some bytes; sometimes nothing.
  file.size = static_cast<int64_t>(input->TakeBelow(6)) * kPage;
  if (kind % 16 == 1) file.size += static_cast<int64_t>(input->TakeByte());
  Expect(ftruncate(fd, file.size) == 0, "a memfd takes a size");
  const bool is_sparse = kind % 16 == 2;
  if (!is_sparse && file.size > 0) {
    Expect(fallocate(fd, 0, 0, file.size) == 0, "a memfd takes pages");
  }
  constexpr int kNeeded = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  int seals = kNeeded;
  if (kind % 16 == 3) seals = input->TakeByte() & (kNeeded | F_SEAL_WRITE);
  if (kind % 16 == 4) seals |= F_SEAL_FUTURE_WRITE;
  Expect(fcntl(fd, F_ADD_SEALS, seals) == 0, "a memfd takes seals");
  file.is_good = file.size > 0 && !is_sparse && (seals & kNeeded) == kNeeded;
  file.is_writable = (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) == 0;
  return file;
}

}  // namespace

std::string PacketOf(const ControlRequest& request) {
  using Operation = ControlRequest::Operation;
  std::string packet(server::kControlPacketBytes, '\0');
  packet.replace(0, 4, "CWM1");
  Put(request.operation, 4, &packet);
  if (request.operation == Operation::kRelease) {
    Put(request.handle, 24, &packet);
    return packet;
  }
  Put(request.access, 8, &packet);
  Put(request.size, 16, &packet);
  if (request.operation == Operation::kRegisterDevice) {
    packet.append(request.device.begin(), request.device.end())
        .append(request.allocation.begin(), request.allocation.end());
  }
  if (request.operation == Operation::kRegisterParts) {
    packet.append(request.device.begin(), request.device.end());
  }
  return packet;
}

SharedMemory::SharedMemory(bool has_many_bytes)
    : on_device(server::kFirstDevice, kDeviceBytes),
      admission(
          // Half of them may be registered.
          {.max_requests = 1,
           .max_bytes = 2 * kAdmittedBytes,
           .max_queued = 0}),
      log(std::make_shared<spdlog::logger>(
          "fuzz", std::make_shared<spdlog::sinks::null_sink_mt>())),
      context{.max_bytes = has_many_bytes ? kManyBytes : kFewBytes,
              .max_regions = kMaxRegions,
              .backend = &devices,
              .registry = &registry,
              .admission = &admission,
              .log = &log,
              .counts = std::make_shared<server::RegionCounts>(),
              .errors = &errors,
              .warnings = &warnings,
              .closer = &closer} {
  devices.Lend(on_device);
}

SharedMemoryClient::SharedMemoryClient(SharedMemory* shared) : shared_(shared) {
  std::array<int, 2> sockets{};
  Expect(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
                    sockets.data()) == 0,
         "two sockets can be had");
  own_ = FileDescriptor(sockets[0]);
  connection_ = std::make_unique<server::Connection>(FileDescriptor(sockets[1]),
                                                     shared->context);
}

bool SharedMemoryClient::Step(Input* input) {
  switch (input->TakeBelow(8)) {
    case 0:
      return SendAnything(input);
    case 1:
      return Release(input);
    case 2:
      own_ = FileDescriptor();
      Expect(!connection_->TakePacket(), "a connection ends with its peer");
      return false;
    case 3:
      Expect(connection_->TakePacket(), "a connection waits for its peer");
      return true;
    case 4:
      return RegisterDevice(input);
    case 5:
      return RegisterParts(input);
    default:
      return Register(input);
  }
}

void SharedMemoryClient::Check() const {
  int64_t bytes = 0;
  int64_t device_regions = 0;
  int64_t device_bytes = 0;
  for (const auto& [handle, size] : regions_) {
    const auto region = shared_->registry.Find(Text(handle));
    Expect(region != nullptr && region->size() == size,
           "a registered region is found");
    (region->device() ? device_bytes : bytes) += size;
    device_regions += region->device() ? 1 : 0;
  }
  Expect(static_cast<int64_t>(regions_.size()) <= kMaxRegions &&
             bytes <= shared_->context.max_bytes,
         "a connection keeps its limits");
  Expect(shared_->context.counts->bytes == bytes,
         "memory is mapped for regions only");
  Expect(shared_->devices.open() == device_regions &&
             shared_->context.counts->device_bytes == device_bytes,
         "a device's memory is open for regions only");
}

void SharedMemoryClient::Close() {
  connection_.reset();
  for (const auto& [handle, size] : regions_) {
    Expect(shared_->registry.Find(Text(handle)) == nullptr,
           "a region ends with its connection");
  }
  Expect(shared_->context.counts->regions == 0 &&
             shared_->context.counts->bytes == 0 &&
             shared_->context.counts->device_bytes == 0 &&
             shared_->devices.open() == 0 &&
             shared_->admission.bytes_in_flight() == 0,
         "nothing stays behind");
}

bool SharedMemoryClient::Register(Input* input) {
  const SharedFile file = MakeFile(input);
  const uint8_t choice = input->TakeByte();
  ControlRequest request;
  request.access = (choice & 1) != 0 ? server::RegionAccess::kWrite
                                     : server::RegionAccess::kRead;
  request.size = static_cast<uint64_t>(file.size);
  if (choice >= 250) request.size = input->TakeBelow(UINT64_MAX);
  const size_t copies = choice >= 240 && choice < 250 ? choice % 4 : 1;
  const std::vector<int> descriptors(copies, file.descriptor.get());
  Answer answer;
  const bool is_open = Exchange(PacketOf(request), descriptors, &answer);
  Expect(is_open == (copies == 1), "a register brings one descriptor");
  Expect(answer.is_ok == (copies == 1 && IsWelcome(file, request)),
         "what may be registered is registered, and nothing else");
  if (!answer.is_ok) return is_open;
  Expect(regions_.emplace(answer.handle, file.size).second,
         "no two regions have one handle");
  ExpectMapped(answer, request.access);
  return true;
}

bool SharedMemoryClient::RegisterDevice(Input* input) {
  const uint8_t choice = input->TakeByte();
  ControlRequest request{
      .operation = ControlRequest::Operation::kRegisterDevice,
      .access = (choice & 1) != 0 ? server::RegionAccess::kWrite
                                  : server::RegionAccess::kRead,
      .size = input->TakeBelow(kDeviceBytes + 2),
      .device = shared_->on_device.device(),
      .allocation = shared_->on_device.handle()};
  if (choice >= 250) request.size = input->TakeBelow(UINT64_MAX);
  const bool is_known = choice < 200 || choice >= 250;
  if (!is_known) {
    const uint8_t at = input->TakeByte();
    (choice % 2 == 0 ? request.device.at(at % request.device.size())
                     : request.allocation.at(at % 64)) ^= 1;
  }
  const std::vector<int> descriptors(choice % 64 == 63 ? 1 : 0, own_.get());
  Answer answer;
  const bool is_open = Exchange(PacketOf(request), descriptors, &answer);
  Expect(is_open == descriptors.empty(),
         "a register of device memory brings no descriptor");
  Expect(answer.is_ok == (is_open && is_known && request.size > 0 &&
                          request.size <= static_cast<uint64_t>(kDeviceBytes) &&
                          static_cast<int64_t>(regions_.size()) < kMaxRegions),
         "memory that was lent is opened, as far as it goes");
  if (!answer.is_ok) return is_open;
  Expect(regions_.emplace(answer.handle, static_cast<int64_t>(request.size))
             .second,
         "no two regions have one handle");
  return true;
}

bool SharedMemoryClient::RegisterParts(Input* input) {
  constexpr int64_t kPartPages = 2;
  const uint8_t choice = input->TakeByte();
  const FileDescriptor part(memfd_create("fuzz", MFD_CLOEXEC));
  Expect(ftruncate(part.get(), kPartPages * kPage) == 0,
         "a memfd takes a size");
  const auto count = static_cast<int64_t>(choice % 5);
  // Half of the sizes are whole pages.
  const uint64_t size =
      input->TakeBelow(16) * (choice < 128 ? kPage : kPage / 2 + 1);
  ControlRequest request{
      .operation = ControlRequest::Operation::kRegisterParts,
      .access = server::RegionAccess::kWrite,
      .size = choice == 255 ? input->TakeBelow(UINT64_MAX) : size,
      .device = server::kFirstDevice};
  const std::vector<int> parts(static_cast<size_t>(count), part.get());
  Answer answer;
  const bool is_open = Exchange(PacketOf(request), parts, &answer);
  Expect(is_open == (count > 0), "a register of parts brings descriptors");
  const auto most = static_cast<uint64_t>(count * kPartPages * kPage);
  Expect(answer.is_ok ==
             (count > 0 && request.size > 0 && request.size <= most &&
              request.size % static_cast<uint64_t>(count * kPage) == 0 &&
              static_cast<int64_t>(regions_.size()) < kMaxRegions),
         "parts that the memory has are opened, and nothing else");
  if (!answer.is_ok) return is_open;
  Expect(regions_.emplace(answer.handle, static_cast<int64_t>(request.size))
             .second,
         "no two regions have one handle");
  return true;
}

bool SharedMemoryClient::IsWelcome(const SharedFile& file,
                                   const ControlRequest& request) const {
  int64_t bytes = 0;
  int64_t pages = 0;
  for (const auto& [handle, size] : regions_) {
    if (shared_->registry.Find(Text(handle))->device()) continue;
    bytes += size;
    pages += PagesOf(size);
  }
  return file.is_good && request.size == static_cast<uint64_t>(file.size) &&
         (request.access == server::RegionAccess::kRead || file.is_writable) &&
         static_cast<int64_t>(regions_.size()) < kMaxRegions &&
         bytes + file.size <= shared_->context.max_bytes &&
         (pages + PagesOf(file.size)) * kPage <= kAdmittedBytes;
}

void SharedMemoryClient::ExpectMapped(const Answer& answer,
                                      server::RegionAccess access) const {
  const auto region = shared_->registry.Find(Text(answer.handle));
  Expect(region != nullptr && region->access() == access,
         "a region has the access asked for");
  // Every page can be read: the file is sealed, and has no holes.
  int sum = 0;
  for (int64_t i = 0; i < region->size(); i += kPage) {
    sum += static_cast<int>(region->data()[i]);
  }
  Expect(sum == 0, "fresh memory is zero");
}

bool SharedMemoryClient::Release(Input* input) {
  ControlRequest request{.operation = ControlRequest::Operation::kRelease};
  const uint8_t choice = input->TakeByte();
  auto known = regions_.end();
  if (choice % 4 != 0 && !regions_.empty()) {
    known = std::next(regions_.begin(),
                      static_cast<int64_t>(choice / 4 % regions_.size()));
    request.handle = known->first;
  }
  Answer answer;
  Expect(Exchange(PacketOf(request), {}, &answer),
         "a release leaves the connection open");
  Expect(answer.is_ok == (known != regions_.end()),
         "a connection releases its own regions, and no others");
  if (!answer.is_ok) return true;
  regions_.erase(known);
  Expect(shared_->registry.Find(Text(request.handle)) == nullptr,
         "a released region is not found");
  return true;
}

bool SharedMemoryClient::SendAnything(Input* input) {
  const std::vector<int> descriptors(input->TakeBelow(3), own_.get());
  std::string packet = input->TakeBytes(1 + input->TakeBelow(160));
  // An empty packet looks like a closed socket.
  if (packet.empty()) packet = "C";
  Answer answer;
  const bool is_open = Exchange(packet, descriptors, &answer);
  ControlRequest request;
  const std::vector<uint8_t> bytes(packet.begin(), packet.end());
  Expect(!is_open || server::ParseControlRequest(bytes, &request).empty(),
         "a packet that is no request ends the connection");
  Expect(!answer.is_ok, "no memory comes of a socket's descriptor");
  return is_open;
}

bool SharedMemoryClient::Exchange(const std::string& packet,
                                  const std::vector<int>& descriptors,
                                  Answer* answer) {
  Send(packet, descriptors);
  const bool is_open = connection_->TakePacket();
  std::array<char, kMaxAnswerBytes + 1> buffer{};
  const ssize_t size =
      recv(own_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  Expect(size >= static_cast<ssize_t>(server::kControlPacketBytes) &&
             size <= static_cast<ssize_t>(kMaxAnswerBytes),
         "every packet has an answer of 40 to 240 bytes");
  Expect(std::string_view(buffer.data(), 4) == "CWM1",
         "an answer begins with CWM1");
  uint32_t code = 0;
  std::memcpy(&code, buffer.data() + 4, sizeof(code));
  answer->is_ok = code == 0;
  Expect(answer->is_ok ==
             (size == static_cast<ssize_t>(server::kControlPacketBytes)),
         "a refusal says why");
  std::memcpy(answer->handle.data(), buffer.data() + 24, answer->handle.size());
  return is_open;
}

void SharedMemoryClient::Send(const std::string& packet,
                              const std::vector<int>& descriptors) {
  iovec bytes{const_cast<char*>(packet.data()), packet.size()};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(4 * sizeof(int))> control{};
  if (!descriptors.empty()) {
    const size_t size = descriptors.size() * sizeof(int);
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(size);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(header), descriptors.data(), size);
  }
  Expect(sendmsg(own_.get(), &message, MSG_NOSIGNAL) ==
             static_cast<ssize_t>(packet.size()),
         "a packet can be sent");
}

}  // namespace counterweight::fuzz
