#include "server/shared_memory/mapped_region.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

#include "server/shared_memory/memfd.h"
#include "spdlog/fmt/fmt.h"

namespace counterweight::server {
namespace {

class MappedRegion final : public Region {
 public:
  MappedRegion(Admission::Ticket ticket, std::shared_ptr<RegionCounts> counts,
               kernels::Corrector* backend, void* data, int64_t size,
               RegionAccess access)
      : ticket_(std::move(ticket)),
        counts_(std::move(counts)),
        backend_(backend),
        data_(static_cast<std::byte*>(data)),
        size_(size),
        access_(access),
        is_pinned_(backend != nullptr &&
                   backend->PinHost(data, static_cast<size_t>(size),
                                    access == RegionAccess::kRead)) {
    counts_->regions += 1;
    counts_->bytes += size_;
  }
  MappedRegion(const MappedRegion&) = delete;
  MappedRegion& operator=(const MappedRegion&) = delete;
  ~MappedRegion() override {
    if (is_pinned_) backend_->UnpinHost(data_);
    munmap(data_, static_cast<size_t>(size_));
    counts_->regions -= 1;
    counts_->bytes -= size_;
  }

  std::byte* data() const override { return data_; }
  int64_t size() const override { return size_; }
  RegionAccess access() const override { return access_; }

 private:
  // Released after the memory is unmapped.
  const Admission::Ticket ticket_;
  const std::shared_ptr<RegionCounts> counts_;
  kernels::Corrector* const backend_;
  std::byte* const data_;
  const int64_t size_;
  const RegionAccess access_;
  const bool is_pinned_;
};

// The reserved size of a region: whole pages.
int64_t BytesOfPages(int64_t size) {
  static const int64_t page = sysconf(_SC_PAGESIZE);
  if (size > std::numeric_limits<int64_t>::max() - page) {
    return std::numeric_limits<int64_t>::max();
  }
  return (size + page - 1) / page * page;
}

Refusal Borrow(int64_t bytes, Admission* admission, Admission::Ticket* ticket) {
  switch (admission->Lend(bytes, ticket)) {
    case Admission::Verdict::kAdmitted:
      return {};
    case Admission::Verdict::kFull:
      return {grpc::StatusCode::RESOURCE_EXHAUSTED,
              "shared memory may take half of --max_bytes_in_flight, and has "
              "not that much left; release other regions, or raise the flag"};
    case Admission::Verdict::kTooLarge:
      return {grpc::StatusCode::RESOURCE_EXHAUSTED,
              "the region has more than half of --max_bytes_in_flight, the "
              "most that shared memory may take"};
    case Admission::Verdict::kClosed:
      break;
  }
  return {grpc::StatusCode::UNAVAILABLE, "the server is shutting down"};
}

}  // namespace

std::shared_ptr<const Region> MapRegion(
    const FileDescriptor& memfd, uint64_t size, RegionAccess access,
    Admission* admission, kernels::Corrector* backend,
    const std::shared_ptr<RegionCounts>& counts, Refusal* refusal) {
  const std::string problem =
      MemfdProblem(ReadMemfdFacts(memfd.get()), size, access);
  if (!problem.empty()) {
    *refusal = {grpc::StatusCode::INVALID_ARGUMENT, problem};
    return nullptr;
  }
  const auto bytes = static_cast<int64_t>(size);  // a file has no more
  Admission::Ticket ticket;
  *refusal = Borrow(BytesOfPages(bytes), admission, &ticket);
  if (refusal->code != grpc::StatusCode::OK) return nullptr;

  const int protection =
      access == RegionAccess::kWrite ? PROT_READ | PROT_WRITE : PROT_READ;
  void* const data =
      mmap(nullptr, size, protection, MAP_SHARED, memfd.get(), 0);
  if (data == MAP_FAILED) {
    const int cause = errno;
    *refusal = {cause == ENOMEM ? grpc::StatusCode::RESOURCE_EXHAUSTED
                                : grpc::StatusCode::INVALID_ARGUMENT,
                fmt::format("the memfd cannot be mapped: {}",
                            std::generic_category().message(cause))};
    return nullptr;
  }
  return std::make_shared<const MappedRegion>(std::move(ticket), counts,
                                              backend, data, bytes, access);
}

}  // namespace counterweight::server
