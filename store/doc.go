// Package store defines the types of the dispatcher and their rules: [Callback], [Attempt], [Policy],
// [Success], the states and the legal transitions between them, filters and pages, and the errors of a store.
//
// It imports only the standard library, so every other package can use its types without a database driver.
// SQL is in store/sqlstore. The tests that every store must pass are in store/storetest.
//
// Times are Unix milliseconds in int64 fields whose names end in At or Until. Zero means "none". Durations
// are time.Duration. Ids are bare ULIDs. The API and the admin UI add the prefix that callers see
// ([CallbackPrefix]).
package store
