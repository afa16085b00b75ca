// The page of what the dialects compute, server/engine/dialects/SYSTEMS.md.
#ifndef COUNTERWEIGHT_TESTS_SERVER_DIALECTS_SYSTEMS_PAGE_H_
#define COUNTERWEIGHT_TESTS_SERVER_DIALECTS_SYSTEMS_PAGE_H_

#include <string>

namespace counterweight::server {

// Returns the page in Markdown: for each dialect the code that its answers are
// compared with, the numbers of goldens, the parts of methods that the
// translations of its goldens' blocks have, and a block for its users.
std::string SystemsPage();

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_TESTS_SERVER_DIALECTS_SYSTEMS_PAGE_H_
