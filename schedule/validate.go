package schedule

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Bounds of what an index can hold. The index checks every element of a call before it changes anything, so
// that no call is half done.
const (
	// MaxTime is the latest time in Unix milliseconds (an index may have an earlier one for due times) and
	// the longest interval in nanoseconds. A sorted set's score and Lua's numbers hold it exactly. Larger
	// values are reduced to it.
	MaxTime = 1<<53 - 1
	// MaxClaim is the most items that one claim leases.
	MaxClaim = 256
	// MaxLock is the longest name of a lock in characters.
	MaxLock = 22

	maxToken = 32
	maxOwner = 128
	idLength = 26
)

// A charset is a set of bytes.
type charset [256]bool

// charsOf returns the set of the bytes of s.
func charsOf(s string) *charset {
	c := new(charset)
	for i := range len(s) {
		c[s[i]] = true
	}
	return c
}

// all reports whether every byte of s is in the set.
func (c *charset) all(s string) bool {
	for i := range len(s) {
		if !c[s[i]] {
			return false
		}
	}
	return true
}

var (
	idChars   = charsOf("0123456789ABCDEFGHJKMNPQRSTVWXYZ") // Crockford's base 32
	wordChars = charsOf("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
)

// Validate checks the elements of one call. It returns ErrTooMany, or the first error of check with the
// position of the element.
func Validate[E any](operation string, elements []E, check func(E) error) error {
	if n := len(elements); n > MaxBatch {
		return fmt.Errorf("%s: %d elements: %w", operation, n, ErrTooMany)
	}
	for i := range elements {
		if err := check(elements[i]); err != nil {
			return fmt.Errorf("%s: element %d: %w", operation, i, err)
		}
	}
	return nil
}

// invalid returns ErrInvalid with the name and the value of the wrong part.
func invalid(what string, value any) error {
	return fmt.Errorf("%s %q: %w", what, fmt.Sprint(value), ErrInvalid)
}

// IsWord reports whether s has 1 to most characters of [A-Za-z0-9_-]. The scripts use other characters as
// separators.
func IsWord(s string, most int) bool {
	return s != "" && len(s) <= most && wordChars.all(s)
}

// checkID returns ErrInvalid unless id is a bare ULID: 26 characters that fit 128 bits.
func checkID(what, id string) error {
	if len(id) != idLength || id[0] > '7' || !idChars.all(id) {
		return invalid(what, id)
	}
	return nil
}

// ValidateID returns ErrInvalid unless id is a bare ULID.
func ValidateID(id string) error { return checkID("id", id) }

// ValidateLane returns ErrInvalid unless lane is above zero.
func ValidateLane(lane int64) error {
	if lane <= 0 {
		return invalid("lane", lane)
	}
	return nil
}

// ValidateToken returns ErrInvalid for a malformed token. The empty token passes: it matches no lease.
func ValidateToken(token string) error {
	if token != "" {
		return checkWord("token", token, maxToken)
	}
	return nil
}

func checkWord(what, s string, most int) error {
	if !IsWord(s, most) {
		return invalid(what, s)
	}
	return nil
}

// Validate returns ErrInvalid unless the id and the lane are valid.
func (r Ref) Validate() error { return errors.Join(ValidateLane(r.Lane), ValidateID(r.ID)) }

// Validate returns ErrInvalid for an item that an index cannot hold.
func (i Item) Validate() error {
	if i.Lock != "" && !IsWord(i.Lock, MaxLock) {
		return invalid("lock", i.Lock)
	}
	return i.Ref().Validate()
}

// Validate returns ErrInvalid for a malformed id, lane or token.
func (l LeaseRef) Validate() error { return errors.Join(l.Ref.Validate(), ValidateToken(l.Token)) }

// validateNext returns ErrInvalid unless l is empty or a valid lease of the lane.
func (l LeaseRef) validateNext(lane int64) error {
	switch {
	case l.ID == "":
		return nil
	case l.Lane != lane:
		return invalid("lane of next", l.Lane)
	}
	return l.Validate()
}

// Validate returns ErrInvalid if the lease or its Next is malformed, or Next is of another lane.
func (e EndedLease) Validate() error {
	return errors.Join(e.LeaseRef.Validate(), e.Next.validateNext(e.Lane))
}

// Validate returns ErrInvalid for a settlement without an outcome, or with an invalid part.
func (s Settlement) Validate() error {
	switch {
	case s.Outcome < Ack || s.Outcome > Bury:
		return invalid("outcome", int(s.Outcome))
	case s.Signal < NoSignal || s.Signal > Unanswered:
		return invalid("signal", int(s.Signal))
	case s.Cause != 0 && s.Cause.String() == "":
		return invalid("cause", int(s.Cause))
	}
	return errors.Join(s.Next.validateNext(s.Lane), ValidateToken(s.Token), s.Item.Validate())
}

// Validate returns ErrInvalid unless l is a valid argument of Extend. The token may be empty.
func (l Lease) Validate() error { return errors.Join(ValidateToken(l.Token), l.Item.Validate()) }

// ValidateRunning returns ErrInvalid unless l is a valid argument of Adopt: it must have a token.
func (l Lease) ValidateRunning() error {
	return errors.Join(checkWord("token", l.Token, maxToken), l.Item.Validate())
}

// ValidateLocking returns ErrInvalid unless l is a valid argument of Acquire: it must have a lock and a
// token.
func (l Lease) ValidateLocking() error {
	return errors.Join(checkWord("lock", l.Lock, MaxLock), l.ValidateRunning())
}

// Validate returns ErrInvalid for a setting that is out of bounds.
func (s LaneSetting) Validate() error {
	switch {
	case s.Limit < 0:
		return invalid("limit", s.Limit)
	case s.Every < 0 || s.Every > 0 && s.Every < time.Microsecond:
		return invalid("time between attempts", s.Every)
	}
	return ValidateLane(s.Lane)
}

// Validate returns ErrInvalid for an unlock without a lock or with malformed waiters, and ErrTooMany for more
// than MaxBatch waiters.
func (u Unlock) Validate() error {
	if n := len(u.Gone) + len(u.Skip); n > MaxBatch {
		return fmt.Errorf("%d waiters: %w", n, ErrTooMany)
	}
	for _, id := range slices.Concat(u.Gone, u.Skip) {
		if err := checkID("waiter", id); err != nil {
			return err
		}
	}
	return errors.Join(checkWord("lock", u.Lock, MaxLock), ValidateToken(u.Token))
}

// Validate returns ErrInvalid for a claim that is out of bounds.
func (r ClaimRequest) Validate() error {
	var err error
	switch {
	case r.Owner == "" || len(r.Owner) > maxOwner:
		err = invalid("owner", r.Owner)
	case !IsWord(r.Token, maxToken):
		err = invalid("token", r.Token)
	case r.Max < 0 || r.Max > MaxClaim:
		err = invalid("max", r.Max)
	case r.Lease < time.Millisecond:
		err = invalid("lease", r.Lease)
	case r.Lookahead < 0 || r.Lookahead > MaxLookahead:
		err = invalid("lookahead", r.Lookahead)
	case r.LaneLimit < 1:
		err = invalid("lane limit", r.LaneLimit)
	case len(r.Ended) > MaxEnded:
		err = invalid("number of ended leases", len(r.Ended))
	case len(r.Prefetch) > MaxPrefetch:
		err = invalid("number of lanes to prefetch", len(r.Prefetch))
	default:
		return errors.Join(Validate("claim", r.Ended, EndedLease.Validate), validatePrefetch(r.Prefetch))
	}
	return fmt.Errorf("claim: %w", err)
}

// validatePrefetch returns ErrInvalid for an invalid lane or bound, and for a lane that occurs twice.
func validatePrefetch(lanes []LanePrefetch) error {
	for i, p := range lanes {
		twice := slices.ContainsFunc(lanes[:i], func(q LanePrefetch) bool { return q.Lane == p.Lane })
		if p.Lane < 1 || p.Max < 0 || p.Max > MaxClaim || twice {
			return fmt.Errorf("claim: %w", invalid("prefetch", p))
		}
	}
	return nil
}

// Validate returns ErrInvalid for a horizon that is not zero and below 1 ms, and for a malformed token.
func (a Advance) Validate() error {
	if a.Horizon != 0 && a.Horizon < time.Millisecond {
		return fmt.Errorf("advance: %w", invalid("horizon", a.Horizon))
	}
	if err := errors.Join(checkWord("token", a.Token, maxToken), ValidateToken(a.After)); err != nil {
		return fmt.Errorf("advance: %w", err)
	}
	return nil
}

// ValidateShard returns ErrInvalid unless shard is one of 0..shards-1.
func ValidateShard(operation string, shard, shards int) error {
	if shard < 0 || shard >= shards {
		return fmt.Errorf("%s: shard %d of %d: %w", operation, shard, shards, ErrInvalid)
	}
	return nil
}
