// The methods table in parts, one function for each family of rows.
#ifndef COUNTERWEIGHT_KERNELS_METHODS_ROWS_H_
#define COUNTERWEIGHT_KERNELS_METHODS_ROWS_H_

#include <vector>

#include "kernels/methods.h"

namespace counterweight::kernels::methods {

// Weights and rejection, by the system that defines them.
std::vector<Method> DecoupledRows();  // verl, old/rollout
std::vector<Method> BypassRows();     // verl, current/rollout
std::vector<Method> TrlRows();
std::vector<Method> SkyrlRows();
std::vector<Method> OpenrlhfRows();

// Losses.
std::vector<Method> ClippedLossRows();    // of the token's ratio
std::vector<Method> SequenceLossRows();   // of the row's ratio
std::vector<Method> GatedLossRows();      // something else than a clip
std::vector<Method> UnclippedLossRows();  // no bound at all
std::vector<Method> CorrectedLossRows();  // with weights or rules

}  // namespace counterweight::kernels::methods

#endif  // COUNTERWEIGHT_KERNELS_METHODS_ROWS_H_
