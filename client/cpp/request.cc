#include "client/cpp/request.h"

namespace counterweight::client {

void SetPadded(int64_t num_sequences, int64_t length, Request* request) {
  v1::PaddedLayout* const padded =
      request->header.mutable_layout()->mutable_padded();
  padded->set_num_sequences(num_sequences);
  padded->set_length(length);
}

void SetPacked(std::span<const int64_t> sequence_lengths, Request* request) {
  v1::PackedLayout* const packed =
      request->header.mutable_layout()->mutable_packed();
  packed->mutable_sequence_lengths()->Assign(sequence_lengths.begin(),
                                             sequence_lengths.end());
}

}  // namespace counterweight::client
