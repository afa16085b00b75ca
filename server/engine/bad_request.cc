#include "server/engine/bad_request.h"

#include <algorithm>
#include <string_view>

#include "server/engine/names.h"

namespace counterweight::server {
namespace {

// Limits of one violation: sixteen of the usual ones fit, and one giant does
// not push out the others.
constexpr size_t kMaxFieldBytes = 128;
constexpr size_t kMaxDescriptionBytes = 512;

// The space that the message's copy, the Any and the Status around it leave.
constexpr size_t kMaxBadRequestBytes =
    kMaxDetailsBytes - kMaxMessageBytes - 100;

// `text`, marked where something was cut.
std::string Abridge(std::string_view text, size_t max_bytes) {
  constexpr std::string_view kMark = "...";
  if (text.size() <= max_bytes) return std::string(text);
  return Concat(Shorten(text, max_bytes - kMark.size()), kMark);
}

// grpc-message is percent-encoded on the wire, where other characters take
// three times their bytes; the details have the text as it is.
std::string ToAscii(std::string_view text) {
  std::string ascii(text);
  std::replace_if(
      ascii.begin(), ascii.end(), [](char c) { return c < 0x20 || c > 0x7E; },
      '?');
  return ascii;
}

}  // namespace

BadRequest MakeBadRequest(const Violations& violations) {
  BadRequest made;
  std::string message;
  if (violations.size() > 1) {
    message = std::to_string(violations.size()) + " violations: ";
  }
  for (const Violation& violation : violations) {
    const std::string field = Abridge(violation.field, kMaxFieldBytes);
    const std::string description =
        Abridge(violation.description, kMaxDescriptionBytes);
    auto* added = made.details.add_field_violations();
    added->set_field(field);
    added->set_description(description);
    if (made.details.field_violations_size() >
            static_cast<int>(kMaxReportedViolations) ||
        made.details.ByteSizeLong() > kMaxBadRequestBytes) {
      made.details.mutable_field_violations()->RemoveLast();
      break;
    }
    if (&violation != &violations.front()) message.append("; ");
    message.append(field).append(": ").append(description);
  }
  made.message = Abridge(ToAscii(message), kMaxMessageBytes);
  return made;
}

}  // namespace counterweight::server
