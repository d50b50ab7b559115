package schedule

import "errors"

// ErrLost is returned by every operation of an index whose generation is missing or foreign: the index was
// emptied, or rebuilt by somebody else. Nothing was changed. The caller compares generations with SQL and
// rebuilds or adopts.
var ErrLost = errors.New("index generation is missing or foreign")

// ErrRebuilding is returned by claims while a rebuild has not yet opened the shard.
var ErrRebuilding = errors.New("index is being rebuilt")

// ErrTooMany is returned for a call with more than MaxBatch elements.
var ErrTooMany = errors.New("too many elements in one call to the index")

// ErrInvalid is returned for an element that cannot be represented: a malformed id, lane, lock or token.
// Nothing of the call was done.
var ErrInvalid = errors.New("element is not valid for the index")

// What Generation returns of a shard that another build has written. ErrOlder: this build cannot read it, and
// may put a new index in its place. ErrNewer: it must not even do that.
var (
	ErrOlder = errors.New("the index was written by an older build")
	ErrNewer = errors.New("the index was written by a newer build")
)
