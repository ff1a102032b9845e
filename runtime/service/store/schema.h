// SPDX-License-Identifier: Apache-2.0
// The tables of the job store, their version, and how older versions become the present one.
#pragma once

#include "absl/types/span.h"
#include "runtime/service/store/database.h"

namespace snapkv::service {

// One step from version `to` - 1.
struct Migration {
  int to;
  const char* sql;
};

// All of them, in order; the last one's `to` is the present version. A change of the schema appends one and
// never edits an older one, or new state folders and migrated ones would differ.
absl::Span<const Migration> Migrations();

// Brings the database to the last version, each step in one transaction. FAILED_PRECONDITION: a newer version
// (both numbers are named), or a database that is not ours.
absl::Status Migrate(Database& database, absl::Span<const Migration> migrations);

}  // namespace snapkv::service
