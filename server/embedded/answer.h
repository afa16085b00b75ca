// An answer and the memory that it owns.
#ifndef COUNTERWEIGHT_SERVER_EMBEDDED_ANSWER_H_
#define COUNTERWEIGHT_SERVER_EMBEDDED_ANSWER_H_

#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "counterweight/v1/method.pb.h"
#include "server/embedded/counterweight.h"
#include "server/engine/publication.h"

namespace counterweight::embedded {

// Suits the vectors of any instruction set.
inline constexpr size_t kAlignment = 64;

// cw_free gets the public base back.
struct Answer : cw_answer {
  Answer() : cw_answer() {}

  // Returns memory that lives as long as the answer; its content is undefined.
  void* Allocate(size_t size) {
    memory.emplace_back(static_cast<std::byte*>(
        ::operator new(size, std::align_val_t(kAlignment))));
    return memory.back().get();
  }
  // Points the public base at the members.
  void Publish() {
    message = {text.data(), text.size()};
    tensors = places.data();
    num_tensors = places.size();
  }

  struct Delete {
    void operator()(std::byte* bytes) const {
      ::operator delete(bytes, std::align_val_t(kAlignment));
    }
  };

  std::string text;
  // Source of cw_sums; none if nothing is to be published.
  std::optional<server::Publication> publication;
  v1::Method method;  // of the publication, if that has one
  std::string sums;
  std::vector<cw_bytes> places;
  std::vector<std::unique_ptr<std::byte, Delete>> memory;
};

}  // namespace counterweight::embedded

#endif  // COUNTERWEIGHT_SERVER_EMBEDDED_ANSWER_H_
