// Several devices behind one Corrector.
#ifndef COUNTERWEIGHT_KERNELS_DEVICES_H_
#define COUNTERWEIGHT_KERNELS_DEVICES_H_

#include <memory>
#include <string>
#include <vector>

#include "kernels/corrector.h"

namespace counterweight::kernels {

bool IsBuiltWithCuda();

// Returns the number of devices that MakeCudaCorrector accepts. 0, and an error
// sentence in *error, if this build or machine has none.
int NumCudaDevices(std::string* error);

// A batch goes to the device with the fewest positions in work (the first of
// equals), and to the next if that one is out of memory. A device that failed
// gets no work while another has not failed. A batch with tensors or outputs in
// device memory goes to the device of that memory. The result names the device
// that computed.
//
// REQUIRES, beside Corrector's: one device at least, each with one entry in
// Info().devices; a batch's device memory lies on one device.
std::unique_ptr<Corrector> MakeDevicesCorrector(
    std::vector<std::unique_ptr<Corrector>> devices);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_DEVICES_H_
