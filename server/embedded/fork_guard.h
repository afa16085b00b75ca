// Detects a fork() that leaves locks behind which no thread of the child holds.
#ifndef COUNTERWEIGHT_SERVER_EMBEDDED_FORK_GUARD_H_
#define COUNTERWEIGHT_SERVER_EMBEDDED_FORK_GUARD_H_

namespace counterweight::embedded {

// Marks work that may hold process-wide locks, such as protobuf's.
class ForkGuard {
 public:
  ForkGuard();
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  // Returns false in a process that was forked while another thread did such
  // work: a thread that the child does not have may hold a lock.
  bool is_safe() const { return is_safe_; }

 private:
  bool is_safe_ = true;
};

}  // namespace counterweight::embedded

#endif  // COUNTERWEIGHT_SERVER_EMBEDDED_FORK_GUARD_H_
