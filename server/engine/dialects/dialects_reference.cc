// Prints client/python/counterweight_rl/dialect_fields.py (see .ci/docs).
#include <iostream>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"
#include "server/engine/dialects/fields.h"
#include "server/engine/dialects/other_fields.h"

namespace counterweight::server {
namespace {

// Fields by name; null: a value, an object: a struct, an array: a list of
// structs.
using Fields = nlohmann::json;

template <typename... Tables>
Fields FieldsOf(const Tables&... tables) {
  Fields fields;
  const auto add = [&](const auto& names) {
    for (const std::string_view name : names) fields[std::string(name)];
  };
  (add(tables), ...);
  return fields;
}

Fields Verl() {
  Fields loss = FieldsOf(kVerlLossFields);
  loss["global_batch_info"] = FieldsOf(kVerlCountFields);
  // ActorConfig has a PolicyLossConfig; a block's own policy_loss is both in
  // one.
  Fields actor = loss;
  actor["policy_loss"] = loss;
  const Fields correction = FieldsOf(kVerlLayoutFields);
  Fields block = correction;
  block["policy_loss"] = actor;
  block["algorithm"]["rollout_correction"] = correction;
  block["actor_rollout_ref"]["actor"] = actor;
  return block;
}

Fields Skyrl() {
  Fields block = FieldsOf(kSkyrlFields);
  block["off_policy_correction"] = FieldsOf(kSkyrlCorrectionFields);
  block["sapo"] = FieldsOf(kSkyrlSapoFields);
  block["cispo"] = FieldsOf(kSkyrlCispoFields);
  block["dppo"] = FieldsOf(kSkyrlDppoFields);
  block["clip_cov"] = FieldsOf(kSkyrlClipCovFields);
  block["kl_cov"] = FieldsOf(kSkyrlKlCovFields);
  return block;
}

Fields Areal() {
  Fields block = FieldsOf(kArealFields);
  block["rejection_sampling"] = FieldsOf(kArealRejectionFields);
  const Fields actor = block;
  block[std::string(kArealActor)] = actor;
  return block;
}

Fields Roll() {
  Fields block = FieldsOf(kRollFields);
  block["actor_train"] = FieldsOf(kRollActorFields);
  Fields& correction = block["train_infer_correction"];
  correction = FieldsOf(kRollCorrectionFields);
  correction["is_weight"] = FieldsOf(kRollWeightFields);
  correction["filters"] = Fields::array({FieldsOf(kRollFilterFields)});
  return block;
}

Fields Tinker() {
  Fields block = FieldsOf(kTinkerFields);
  block["loss_fn_config"] = FieldsOf(kTinkerConfigFields);
  return block;
}

// As ruff formats them.
void Print(const Fields& fields, const std::string& indent);

void PrintStruct(const Fields& fields, const std::string& indent) {
  std::cout << "{\n";
  Print(fields, indent + "    ");
  std::cout << indent << "},\n";
}

void Print(const Fields& fields, const std::string& indent) {
  for (const auto& [name, inner] : fields.items()) {
    std::cout << indent << '"' << name << "\": ";
    if (inner.is_null()) {
      std::cout << "None,\n";
    } else if (inner.is_array()) {
      std::cout << "[\n" << indent << "    ";
      PrintStruct(inner[0], indent + "    ");
      std::cout << indent << "],\n";
    } else {
      PrintStruct(inner, indent);
    }
  }
}

template <typename Names>
void PrintOthers(std::string_view system, const Names& names) {
  std::cout << "    \"" << system << "\": frozenset(\n        {\n";
  for (const std::string_view name : names) {
    std::cout << "            \"" << name << "\",\n";
  }
  std::cout << "        }\n    ),\n";
}

void Main() {
  std::cout
      << R"("""The fields that the server's dialects know. Written by `make docs`; do not edit.

None: a value. A mapping: the fields of a struct. A list: that of structs with these fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FIELDS: Mapping[str, Mapping[str, Any]] = {
)";
  Fields systems;
  systems["miles"] = FieldsOf(kSlimeFields, kMilesFields);
  systems["ms_swift"] = FieldsOf(kMsSwiftFields);
  systems["nemo_rl"] = FieldsOf(kNemoRlFields);
  systems["slime"] = FieldsOf(kSlimeFields);
  systems["openrlhf"] =
      FieldsOf(kOpenrlhfFields, kOpenrlhfOldFields, kOpenrlhfNewFields);
  systems["areal"] = Areal();
  systems["prime_rl"] = FieldsOf(kPrimeRlFields);
  systems["roll"] = Roll();
  systems["skyrl"] = Skyrl();
  systems["tinker"] = Tinker();
  systems["trl"] = FieldsOf(kTrlFields);
  systems["verl"] = Verl();
  Print(systems, "    ");
  std::cout << R"(}

OTHERS: Mapping[str, frozenset[str]] = {
)";
  PrintOthers("areal", kArealOtherFields);
  PrintOthers("roll", kRollOtherFields);
  std::cout << R"(}
"""Fields that a system's configuration has beside them, and that change no answer."""
)";
}

}  // namespace
}  // namespace counterweight::server

int main() { counterweight::server::Main(); }
