#include "server/engine/codec_declaration.h"

#include <optional>
#include <string_view>
#include <utility>

#include "server/engine/codec_calm_bound.h"
#include "server/engine/codec_labels.h"
#include "server/engine/message_bytes.h"
#include "server/engine/names.h"

namespace counterweight::server {
namespace {

// A request with every input.
MethodContext EveryInput(bool wants_loss) {
  MethodContext context;
  RequestFacts& facts = context.facts;
  facts.has_rollout_log_probs = true;
  facts.has_old_log_probs = true;
  facts.has_current_log_probs = true;
  facts.has_ref_log_probs = true;
  facts.has_advantages = true;
  facts.has_group_ids = true;
  facts.wants_loss = wants_loss;
  facts.has_global_counts = true;
  facts.num_sequences = 1;
  facts.padded_length = 1;
  return context;
}

v1::Method MethodOf(const DeclaredMethod& declared) {
  v1::Method method;
  // These bytes were parsed before.
  static_cast<void>(method.ParseFromString(declared.bytes));
  return method;
}

// The numbers that a method computes: what its words mean.
struct Meaning {
  std::string name;
  kernels::CorrectionSpec spec;
  // The loss divides by the counts of all ranks.
  bool is_global = false;
  // The quantile of a bound that the run's calm steps decide; 0: it has none.
  double calm_quantile = 0.0;
};

// Nothing if the context is none of the method's.
std::optional<Meaning> MeaningOf(const v1::Method& message,
                                 const MethodContext& context) {
  const bool is_calm = HasCalmBound(message);
  Result<Method> method =
      ReadMethod(is_calm ? WithoutCalmBound(message) : message, context.facts);
  if (!method.ok()) return std::nullopt;
  Meaning meaning{.name = std::move(method.value.name),
                  .spec = method.value.spec,
                  .is_global = method.value.counts_use.is_global};
  if (is_calm) {
    meaning.calm_quantile = ReadCalmBound(message).value.weights.quantile;
  }
  kernels::CorrectionSpec& spec = meaning.spec;
  if (context.omits_loss) {
    spec.loss = {};
    meaning.is_global = false;
  }
  // These are for other systems' metrics, and a permission.
  spec.peer_sums = false;
  spec.loss.peer_sums = false;
  spec.loss.measures_padding = false;
  spec.loss.allow_double_correction = false;
  return meaning;
}

struct Meanings {
  std::optional<Meaning> declared, other;

  bool AreEqual() const {
    return declared && other && declared->spec == other->spec &&
           declared->is_global == other->is_global &&
           declared->calm_quantile == other->calm_quantile;
  }
};

// The meanings of both methods for one request, with `other`. A preset and a
// config always have their loss, a block only where the request wants it: one
// that was not wanted is not compared.
Meanings MeaningsOf(const v1::Method& declared, const v1::Method& other,
                    MethodContext context) {
  if (other.has_dialect() && !context.facts.wants_loss) {
    context.omits_loss = true;
  }
  Meanings of;
  of.other = MeaningOf(other, context);
  if (declared.has_dialect() && of.other) {
    context.facts.wants_loss =
        of.other->spec.loss.surrogate != kernels::Surrogate::kNone;
  }
  of.declared = MeaningOf(declared, context);
  return of;
}

// The two methods as a sentence names them: with their numbers where the names
// are equal.
std::pair<std::string, std::string> NamesOf(const std::string& declared,
                                            const std::optional<Meaning>& a,
                                            const Meaning& b) {
  if (declared != b.name) return {declared, b.name};
  const std::string numbers = a ? ToString(a->spec) : std::string();
  const std::string others = ToString(b.spec);
  if (!a || numbers == others) {
    const bool is_loss =
        a && (a->spec.loss != b.spec.loss || a->is_global != b.is_global);
    return {declared, Concat(b.name, is_loss ? " with another policy loss"
                                             : " with other parameters")};
  }
  return {Concat(declared, " (", numbers, ")"),
          Concat(b.name, " (", others, ")")};
}

void CheckLabelsOf(const v1::DeclareRunRequest& request,
                   Violations* violations) {
  const v1::Labels& labels = request.labels();
  CheckLabels(request.request_id(), labels, violations);
  if (labels.run().empty()) {
    violations->push_back({"labels.run", "is required"});
  }
  const auto refuse = [&](bool has, const char* field) {
    if (!has) return;
    violations->push_back({field, "is not read by DeclareRun; leave it out"});
  };
  refuse(!labels.replica().empty(), "labels.replica");
  refuse(labels.has_policy_version(), "labels.policy_version");
  refuse(labels.has_step(), "labels.step");
}

}  // namespace

Result<Declaration> ReadDeclaration(const v1::DeclareRunRequest& request) {
  Result<Declaration> result;
  CheckLabelsOf(request, &result.violations);
  v1::Method plain = request.method();
  if (HasCalmBound(plain)) {
    result.violations.Append(ReadCalmBound(plain).violations);
    plain = WithoutCalmBound(plain);
  }
  Result<Method> method =
      ReadMethod(plain, EveryInput(/*wants_loss=*/true).facts);
  if (!method.ok() && request.method().has_dialect()) {
    Result<Method> weights =
        ReadMethod(request.method(), EveryInput(/*wants_loss=*/false).facts);
    if (weights.ok()) method = std::move(weights);
  }
  result.violations.Append(method.violations);
  if (!result.ok()) return result;
  result.value = {.run = request.labels().run(),
                  .method = std::make_shared<DeclaredMethod>(
                      DeclaredMethod{.name = std::move(method.value.name),
                                     .bytes = MessageBytes(request.method())}),
                  .warnings = std::move(method.value.warnings)};
  return result;
}

MethodContext ContextOf(const v1::CorrectRequest& request,
                        const Decoded& decoded) {
  MethodContext context{.facts = FactsOf(request, decoded.tensors),
                        .omits_loss = request.omit_loss()};
  context.facts.num_sequences = decoded.layout.num_sequences;
  context.facts.padded_length = decoded.layout.padded_length;
  return context;
}

std::string WarnOfOtherMethod(const std::string& run,
                              const DeclaredMethod& declared,
                              const v1::Method& method,
                              const MethodContext& context) {
  if (MessageBytes(method) == declared.bytes) return {};
  const Meanings of = MeaningsOf(MethodOf(declared), method, context);
  if (!of.other || of.AreEqual()) return {};
  const auto [a, b] = NamesOf(declared.name, of.declared, *of.other);
  return Concat("run '", run, "' declares ", a,
                "; this batch was corrected by ", b);
}

std::string WarnOfOtherMethod(const DeclaredMethod& declared,
                              const Publication& publication,
                              const v1::PublishRequest& request) {
  if (!publication.facts) return {};
  MethodContext context{.facts = FactsOf(*publication.facts),
                        .omits_loss = OmitsLoss(*publication.facts)};
  context.facts.num_sequences = publication.batch.sums.num_sequences;
  // The batches' width is not published; both methods read the same.
  context.facts.padded_length = 1;
  return WarnOfOtherMethod(
      publication.run, declared,
      publication.part ? request.method() : request.method_of_batch().method(),
      context);
}

namespace {

// Empty if it is the same method.
std::string WarnOfReplaced(const DeclaredMethod* before,
                           const Declaration& declaration) {
  const DeclaredMethod& now = *declaration.method;
  if (before == nullptr || before->bytes == now.bytes) return {};
  const v1::Method old_method = MethodOf(*before);
  const v1::Method new_method = MethodOf(now);
  const bool are_blocks = new_method.has_dialect() && old_method.has_dialect();
  Meanings of = MeaningsOf(old_method, new_method, EveryInput(are_blocks));
  if (!of.other) {
    of = MeaningsOf(old_method, new_method, EveryInput(/*wants_loss=*/false));
  }
  if (!of.other || of.AreEqual()) return {};
  const auto [a, b] = NamesOf(before->name, of.declared, *of.other);
  return Concat("run '", declaration.run, "' declared ", a,
                " before, which this declaration replaces by ", b);
}

}  // namespace

v1::DeclareRunResponse AnswerTo(const Declaration& declaration,
                                const DeclaredMethod* before) {
  v1::DeclareRunResponse response;
  response.set_method(declaration.method->name);
  const std::string replaced = WarnOfReplaced(before, declaration);
  if (!replaced.empty()) response.add_warnings(replaced);
  response.mutable_warnings()->Add(declaration.warnings.begin(),
                                   declaration.warnings.end());
  return response;
}

}  // namespace counterweight::server
