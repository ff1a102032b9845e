// SPDX-License-Identifier: Apache-2.0
// DocumentQueue: reads and tokenizes ahead of the engine, on a thread of its own, a few documents and no
// more.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "absl/time/time.h"
#include "launch/prompt_builder.h"

namespace snapkv::launch {

class DocumentQueue {
 public:
  // The next document, nullopt after the last; an error ends the input. It may block for any time (somebody
  // types). It must own what it uses: after a signal it may outlive the queue.
  using Next = std::function<absl::StatusOr<std::optional<PreparedDocument>>()>;

  // Starts reading. At most `ahead` documents wait.
  DocumentQueue(Next next, size_t ahead);
  // Does not wait for a blocked Next.
  ~DocumentQueue();

  enum class State {
    kDocument,  // taken
    kWait,      // none within `wait`
    kEnd,       // of the input; see status()
  };
  State Take(absl::Duration wait, PreparedDocument& document);
  // After kEnd: why the input ended early, or OK.
  absl::Status status() const;

 private:
  struct Shared;
  static void Read(const std::shared_ptr<Shared>& shared, const Next& next);
  std::shared_ptr<Shared> shared_;
};

}  // namespace snapkv::launch
