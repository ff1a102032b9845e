// SPDX-License-Identifier: Apache-2.0
// Safe text and sentences.
#include "launch/client/text.h"

#include "launch/exit_codes.h"
#include "launch/rpc/channel.h"
#include "launch/signals.h"
#include "runtime/service/reason.h"
#include "runtime/text/utf8.h"

namespace snapkv::launch {
namespace {

using service::Reason;

bool IsHarmless(char32_t c) {
  if (c < 0x20 || (c >= 0x7F && c < 0xA0)) return false;
  // Line and paragraph separators, embeddings, overrides and isolates.
  return !(c >= 0x200E && c <= 0x200F) && !(c >= 0x2028 && c <= 0x202E) && !(c >= 0x2066 && c <= 0x2069);
}

// What the user can do that the server does not know of.
const char* Advice(const absl::Status& error) {
  const auto reason = service::ReasonOf(error);
  if (!reason.has_value()) {
    switch (error.code()) {
      case absl::StatusCode::kUnavailable:
        return "check --server, and that snapkv-server runs there";
      case absl::StatusCode::kDeadlineExceeded:
        return "try again, or give it more time with --timeout";
      case absl::StatusCode::kUnauthenticated:
        return "give --token-file FILE or set SNAPKV_TOKEN";
      case absl::StatusCode::kUnimplemented:
        return "check that --server names a snapkv-server of this version";
      default:
        return "";
    }
  }
  switch (*reason) {
    case Reason::kTokenMissing:
      return "give --token-file FILE or set SNAPKV_TOKEN";
    case Reason::kTokenInvalid:
      return "check --token-file or SNAPKV_TOKEN, or ask for a new token";
    case Reason::kJobNotFound:
      return "see `snapkv list`";
    case Reason::kModelNotFound:
      return "see `snapkv models`";
    case Reason::kJobTooLarge:
      return "`snapkv batch` splits its input into several jobs";
    case Reason::kQueueFull:
    case Reason::kQuotaExceeded:
    case Reason::kStorageFull:
    case Reason::kDraining:
    case Reason::kNoWorker:
      return "try again later";
    default:
      return "";
  }
}

std::string ReasonText(const absl::Status& error) {
  if (const auto reason = service::ReasonOf(error)) return service::ReasonName(*reason);
  return absl::StatusCodeToString(error.code());
}

}  // namespace

std::string Printable(std::string_view text, size_t most_bytes) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    if (out.size() >= most_bytes) return out + "...";
    const runtime::Utf8Step step = runtime::ReadUtf8(text, pos);
    const bool good = step.kind == runtime::Utf8Step::Kind::kOk;
    if (!good) {
      runtime::AppendUtf8(runtime::kReplacementCharacter, &out);
    } else if (step.code_point == '\n' || step.code_point == '\t') {
      out += ' ';
    } else if (!IsHarmless(step.code_point)) {
      out += '?';
    } else {
      out.append(text.substr(pos, static_cast<size_t>(step.length)));
    }
    pos += static_cast<size_t>(step.length);
  }
  return out;
}

std::string SafeJson(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  const auto escape = [&](unsigned code) {
    constexpr char kDigits[] = "0123456789abcdef";
    out += "\\u00";
    out += kDigits[code >> 4];
    out += kDigits[code & 15];
  };
  for (size_t i = 0; i < json.size(); ++i) {
    const auto byte = static_cast<unsigned char>(json[i]);
    const auto next = i + 1 < json.size() ? static_cast<unsigned char>(json[i + 1]) : 0U;
    if (byte == 0x7F) {
      escape(byte);
    } else if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {
      escape(next);
      ++i;
    } else {
      out += json[i];
    }
  }
  return out;
}

std::string ErrorSentence(const absl::Status& error, const std::string& server) {
  std::string said = Printable(std::string(error.message()));
  // gRPC's account of an attempt to connect: only its end tells.
  constexpr std::string_view kLast = "last error: UNKNOWN: ";
  if (const size_t at = said.find(kLast); at != std::string::npos) said = said.substr(at + kLast.size());
  const bool ours = service::ReasonOf(error).has_value();
  std::string text = ReasonText(error) + ": ";
  if (!ours && absl::IsUnavailable(error)) {
    absl::StrAppend(&text, "cannot reach ", server, " (", said, ")");
  } else if (!ours && absl::IsDeadlineExceeded(error)) {
    absl::StrAppend(&text, server, " does not answer in time");
  } else if (IsTransient(error) && !ours) {
    absl::StrAppend(&text, "the connection to ", server, " broke", said.empty() ? "" : " (", said,
                    said.empty() ? "" : ")");
  } else {
    text += said.empty() ? server + " gave no further explanation" : said;
  }
  const std::string advice = Advice(error);
  return advice.empty() ? text : absl::StrCat(text, "; ", advice);
}

bool IsTransient(const absl::Status& error) {
  if (IsRetryable(error)) return true;
  if (service::ReasonOf(error).has_value()) return false;
  return absl::IsDeadlineExceeded(error) || absl::IsInternal(error) || absl::IsUnknown(error) ||
         absl::IsCancelled(error);
}

int RpcExitCode(const absl::Status& error) {
  if (const int signal = PendingSignal(); signal != 0) return 128 + signal;
  if (absl::IsUnauthenticated(error) || absl::IsUnavailable(error)) return kExitUnreachable;
  if (IsTransient(error) && !absl::IsResourceExhausted(error)) return kExitUnreachable;
  return kExitServerRefused;
}

}  // namespace snapkv::launch
