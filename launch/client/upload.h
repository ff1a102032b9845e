// SPDX-License-Identifier: Apache-2.0
// Uploader: documents of a job that is UPLOADING, several at a time, each from where the server has it.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "launch/client/session.h"

namespace snapkv::launch {

struct UploadOptions {
  std::string job;
  int parallel = 4;
  int64_t chunk_bytes = int64_t{256} << 10;
  // An earlier run may have sent some: the server is asked before anything is sent.
  bool repeated = false;
  Patience patience = Patience::kConnect;
  // A document that the server does not take, while it would take others. Called by any thread.
  std::function<void(const std::string& document_id, const absl::Status& status)> refused;
};

// At most `parallel` documents are sent and as many wait. One thread calls it.
class Uploader {
 public:
  Uploader(Session& session, UploadOptions options);
  ~Uploader();  // gives up what is not sent

  // Waits for room. An error is the first that ended the upload: nothing more is sent then.
  absl::Status Add(v1::Document document);
  // Waits for all.
  absl::Status Finish();

 private:
  void Run();
  absl::Status Upload(const v1::Document& document);
  absl::StatusOr<v1::UploadStatus> Ask(const v1::Document& document);
  absl::StatusOr<v1::UploadStatus> Send(const v1::Document& document, const std::string& sha256,
                                        int64_t offset);
  void Join();

  Session& session_;
  const UploadOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  std::deque<v1::Document> waiting_;
  bool ended_ = false;
  absl::Status status_;
  std::vector<std::thread> threads_;
};

}  // namespace snapkv::launch
