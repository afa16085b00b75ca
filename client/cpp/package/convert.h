// Conversions between the installed client's types and the contract's.
#ifndef COUNTERWEIGHT_CLIENT_CPP_PACKAGE_CONVERT_H_
#define COUNTERWEIGHT_CLIENT_CPP_PACKAGE_CONVERT_H_

#include <vector>

#include "client/cpp/package/types.h"
#include "client/cpp/request.h"
#include "client/cpp/response.h"
#include "counterweight/v1/correction_service.pb.h"

namespace counterweight {

// Everything but the method.
void Convert(const Request& from, client::Request* to);
void Convert(const client::Response& from, Result* to);
void Convert(const PartialSums& from, v1::PartialSums* to);
void Convert(const v1::PartialSums& from, PartialSums* to);
void Convert(const v1::MergeSumsResponse& from, StepTotals* to);
void Convert(const v1::GetServerInfoResponse& from, ServerInfo* to);
void Convert(const v1::ListMethodsResponse& from, std::vector<MethodInfo>* to);

}  // namespace counterweight

#endif  // COUNTERWEIGHT_CLIENT_CPP_PACKAGE_CONVERT_H_
