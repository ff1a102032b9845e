// SPDX-License-Identifier: Apache-2.0
// Exit codes of the programs; 70 (a rank was lost or late) is comm::kExitLostRank.
#pragma once

namespace snapkv::launch {

inline constexpr int kExitOk = 0;
inline constexpr int kExitDocumentsFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitInputUnreadable = 3;
inline constexpr int kExitUnreachable = 4;    // the server cannot be reached, or takes no token of ours
inline constexpr int kExitServerRefused = 5;  // the server's answer is an error
inline constexpr int kExitOutputNotWritable = 6;
inline constexpr int kExitJobFailed = 7;
inline constexpr int kExitTimeLimit = 124;

}  // namespace snapkv::launch
