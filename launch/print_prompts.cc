// SPDX-License-Identifier: Apache-2.0
// Prompts as tokens, as a plan over the ranks, or as one line each.
#include "launch/print_prompts.h"

#include <nlohmann/json.hpp>

#include "launch/output/output_files.h"
#include "launch/report.h"
#include "launch/signals.h"
#include "runtime/plan/plan.h"

namespace snapkv::launch {
namespace {

std::string DescribeTokens(const PreparedDocument& prepared, const PrintContext& context) {
  std::string out;
  for (const int32_t id : prepared.tokens) {
    const nlohmann::json piece = context.tokenizer.TokenBytes(id);
    out += std::to_string(id) + "\t" + piece.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
           "\n";
  }
  return out;
}

std::string DescribeDocument(const PreparedDocument& prepared, const PrintContext& context) {
  const int64_t tokens = static_cast<int64_t>(prepared.tokens.size());
  return absl::StrCat(prepared.document.id, ": ", tokens, " prompt tokens, ",
                      runtime::RowsKept(context.flags.compression, tokens), " rows kept, up to ",
                      prepared.document.params.max_tokens, " generated\n");
}

std::string DescribePlan(const PreparedDocument& prepared, const PrintContext& context) {
  const int64_t tokens = static_cast<int64_t>(prepared.tokens.size());
  std::string out =
      absl::StrCat("model ", context.model_path, ": ", context.config.architecture, ", ",
                   context.config.layers, " layers, context ", context.config.context, "\nprompt ", tokens,
                   " tokens, up to ", prepared.document.params.max_tokens, " generated\n");
  const auto plan = runtime::Plan::Create(tokens, context.ranks, context.flags.compression.window, 64);
  if (!plan.ok()) return out + std::string(plan.status().message()) + "\n";
  for (int r = 0; r < plan->ranks(); ++r)
    out += absl::StrCat("rank ", r, ": ", plan->RankTokens(r), " tokens\n");
  return out + absl::StrCat("rows kept per layer and KV head: ",
                            runtime::RowsKept(context.flags.compression, tokens), " of ", tokens, "\n");
}

}  // namespace

int PrintPrompts(const DocumentQueue::Next& next, const PrintContext& context) {
  int64_t documents = 0, failed = 0, tokens = 0;
  const bool tokens_only = context.flags.print_tokens, one = context.one || tokens_only;
  for (;;) {
    const auto prepared = next();
    if (!prepared.ok()) {
      return Report(prepared.status(), InputExitCode(prepared.status()));
    }
    if (!prepared->has_value()) break;
    const PreparedDocument& document = **prepared;
    ++documents;
    if (!document.error.ok()) {
      ++failed;
      LOG(Error) << ErrorLine(document.document, document.error);
      continue;
    }
    tokens += static_cast<int64_t>(document.tokens.size());
    const std::string text = tokens_only ? DescribeTokens(document, context)
                             : one       ? DescribePlan(document, context)
                                         : DescribeDocument(document, context);
    if (const absl::Status status = WriteStdout(text); !status.ok())
      return Report(status, kExitOutputNotWritable);
  }
  if (const int signal = PendingSignal(); signal != 0) return 128 + signal;  // it ends the input early
  if (documents == 0) return Report(NotFound(kEmptyInput), kExitInputUnreadable);
  if (!one) {
    const absl::Status status = WriteStdout(
        absl::StrCat(documents, " documents, ", failed, " of them bad, ", tokens, " prompt tokens\n"));
    if (!status.ok()) return Report(status, kExitOutputNotWritable);
  }
  return failed > 0 ? kExitDocumentsFailed : kExitOk;
}

}  // namespace snapkv::launch
