// Package store holds the nouns of the dispatcher and their rules: [Callback], [Attempt], [Policy],
// [Success], the states and the legal transitions between them, filters and pages, and the errors that a
// store returns.
//
// It imports the standard library only, so that every other package can share its words without dragging a
// driver along. SQL is in store/sqlstore; the suite that any store must pass is store/storetest.
//
// Times are whole Unix milliseconds in int64 fields whose names end in At or Until; zero means "none".
// Durations are time.Duration. Ids are bare ULIDs; the prefix that a caller sees ([CallbackPrefix]) belongs
// to the faces.
package store
