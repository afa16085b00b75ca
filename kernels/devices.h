// Several devices behind one Corrector.
#ifndef COUNTERWEIGHT_KERNELS_DEVICES_H_
#define COUNTERWEIGHT_KERNELS_DEVICES_H_

#include <memory>
#include <string>
#include <vector>

#include "kernels/corrector.h"

namespace counterweight::kernels {

// How many devices MakeCudaCorrector can be asked for. 0, and *error a
// sentence, if this build or machine has none.
int NumCudaDevices(std::string* error);

// A batch goes to the device with the fewest positions in work, of equals to
// the first, and from a device without room for it to the next. A device that
// failed gets no more work as long as another has not. A batch with tensors or
// outputs in device memory goes to the device where they lie. Answers say which
// device computed.
//
// REQUIRES, beside Corrector's: one device at least, each with one entry in
// Info().devices; a batch's device memory lies on one device.
std::unique_ptr<Corrector> MakeDevicesCorrector(
    std::vector<std::unique_ptr<Corrector>> devices);

}  // namespace counterweight::kernels

#endif  // COUNTERWEIGHT_KERNELS_DEVICES_H_
