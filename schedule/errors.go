package schedule

import "errors"

// ErrLost is returned by every operation of an index whose generation is missing or not the expected one: the
// index was emptied, or another process rebuilt it. Nothing was changed. The caller compares the generation
// with SQL and then rebuilds the index or adopts the new generation.
var ErrLost = errors.New("index generation is missing or foreign")

// ErrRebuilding is returned by claims between Reset and Open, while a rebuild fills the shard.
var ErrRebuilding = errors.New("index is being rebuilt")

// ErrTooMany is returned for a call with more than MaxBatch elements. Nothing was changed.
var ErrTooMany = errors.New("too many elements in one call to the index")

// ErrInvalid is returned for an element that the index cannot represent: a malformed id, lane, lock or token.
// Nothing was changed.
var ErrInvalid = errors.New("element is not valid for the index")

// The Generation method of an index returns these errors for a shard that a build with another layout wrote.
var (
	// ErrOlder: this build cannot read the shard, and may replace it with a new index.
	ErrOlder = errors.New("the index was written by an older build")
	// ErrNewer: this build can neither read nor replace the shard.
	ErrNewer = errors.New("the index was written by a newer build")
)
