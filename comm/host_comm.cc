// SPDX-License-Identifier: Apache-2.0
// The operations of HostComm that are the same for every transport.
#include "comm/host_comm.h"

namespace snapkv::comm {

absl::Status HostComm::BroadcastString(std::string& text, int root) {
  int64_t bytes = static_cast<int64_t>(text.size());
  RETURN_IF_ERROR(Broadcast(bytes, root));
  text.resize(static_cast<size_t>(bytes));
  return BroadcastBytes(text.data(), bytes, root);
}

absl::Status HostComm::Agree(const absl::Status& mine) {
  ASSIGN_OR_RETURN(const std::vector<int32_t> codes, AllGather(static_cast<int32_t>(mine.raw_code())));
  for (int r = 0; r < size(); ++r) {
    const int32_t code = codes[static_cast<size_t>(r)];
    if (code == 0) continue;
    std::string text(mine.message());
    RETURN_IF_ERROR(BroadcastString(text, r));
    if (r != 0) text = absl::StrCat("rank ", r, ": ", text);
    return absl::Status(static_cast<absl::StatusCode>(code), text);
  }
  return absl::OkStatus();
}

}  // namespace snapkv::comm
