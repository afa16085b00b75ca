// The method that a trainer declares for a run, and its comparison with those
// of the run's batches. Part of the codec.
#ifndef COUNTERWEIGHT_SERVER_ENGINE_CODEC_DECLARATION_H_
#define COUNTERWEIGHT_SERVER_ENGINE_CODEC_DECLARATION_H_

#include <memory>
#include <string>
#include <vector>

#include "counterweight/v1/correction_service.pb.h"
#include "server/engine/codec.h"
#include "server/engine/dialect.h"
#include "server/engine/publication.h"
#include "server/engine/result.h"

namespace counterweight::server {

// Immutable. Parsed, a block would take many times its bytes.
struct DeclaredMethod {
  std::string name;   // as Method::name
  std::string bytes;  // of the v1::Method; equal ones are one method
};

// The method that a run declares; null: none.
using DeclaredMethodPtr = std::shared_ptr<const DeclaredMethod>;

struct Declaration {
  std::string run;
  DeclaredMethodPtr method;
  // Sentences about the block, as of Correct.
  std::vector<std::string> warnings;
};

// Returns all violations, or the declaration. A method is valid if there are
// inputs with which Correct takes it; a dialect's loss may need the shape of a
// batch, and is then not read.
Result<Declaration> ReadDeclaration(const v1::DeclareRunRequest& request);

// Facts of a batch's request, beside its method, that decide what a method
// computes.
struct MethodContext {
  RequestFacts facts;
  bool omits_loss = false;
};

MethodContext ContextOf(const v1::CorrectRequest& request,
                        const Decoded& decoded);

// Returns the sentence of a batch of the run that `method` corrected, empty if
// that computes what `declared` does: names, and the words of preset, config
// and block, do not matter.
std::string WarnOfOtherMethod(const std::string& run,
                              const DeclaredMethod& declared,
                              const v1::Method& method,
                              const MethodContext& context);

// The same of a published batch; empty if its method is not known.
std::string WarnOfOtherMethod(const DeclaredMethod& declared,
                              const Publication& publication,
                              const v1::PublishRequest& request);

// Returns the answer to a declaration that replaces `before`, which is null if
// the run declared no method; another method is warned of.
v1::DeclareRunResponse AnswerTo(const Declaration& declaration,
                                const DeclaredMethod* before);

}  // namespace counterweight::server

#endif  // COUNTERWEIGHT_SERVER_ENGINE_CODEC_DECLARATION_H_
