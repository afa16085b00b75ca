#ifndef COUNTERWEIGHT_TESTS_SERVER_ADMISSION_DECISIONS_H_
#define COUNTERWEIGHT_TESTS_SERVER_ADMISSION_DECISIONS_H_

#include <string>
#include <utility>
#include <vector>

#include "server/call/admission.h"

namespace counterweight::server {

// The decisions by peer, and the tickets of admitted requests.
struct Decisions {
  std::vector<std::string> admitted;
  std::vector<std::string> refused;
  std::vector<Admission::Verdict> verdicts;
  std::vector<Admission::Ticket> tickets;

  // Released one by one: each release admits others.
  ~Decisions() {
    while (!tickets.empty()) EndOne();
  }

  Admission::Decide For(const std::string& name) {
    return [this, name](Admission::Verdict verdict, Admission::Ticket ticket) {
      verdicts.push_back(verdict);
      if (verdict == Admission::Verdict::kAdmitted) {
        admitted.push_back(name);
        tickets.push_back(std::move(ticket));
      } else {
        refused.push_back(name);
      }
    };
  }
  // Ends the request that was admitted first.
  void EndOne() {
    const Admission::Ticket first = std::move(tickets.front());
    tickets.erase(tickets.begin());
  }
};

inline Client Peer(const std::string& peer, const std::string& name = "") {
  return {peer, name};
}

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_ADMISSION_DECISIONS_H_
