// The reference's LossSums, added up row by row.
#ifndef COUNTERWEIGHT_TESTS_TESTING_REFERENCE_LOSS_SUMS_H_
#define COUNTERWEIGHT_TESTS_TESTING_REFERENCE_LOSS_SUMS_H_

#include "kernels/loss_spec.h"
#include "kernels/loss_sums.h"
#include "kernels/peer_sums.h"
#include "tests/testing/reference_adder.h"
#include "tests/testing/reference_row_gradient.h"
#include "tests/testing/reference_row_loss.h"

namespace counterweight::kernels {

// All 0, extrema those of nothing.
LossSums EmptyLossSums();
PeerLossSums EmptyPeerLossSums();

void AddLossSums(const LossSpec& loss, const ReferenceLossRow& row,
                 const RowGradient& gradient, Adder<LossSums> sums,
                 Adder<PeerLossSums> peers, Margin& margin);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_TESTS_TESTING_REFERENCE_LOSS_SUMS_H_
