package schedule

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// What an index can hold. Everything is checked before an index is changed, so that no call is done in part.
const (
	// MaxTime is the latest time but a due time, in Unix milliseconds, and the longest interval in
	// nanoseconds: what a sorted set's score and Lua's numbers hold exactly. Later ones are taken for it.
	MaxTime = 1<<53 - 1
	// MaxClaim is the most items that one claim leases.
	MaxClaim = 256
	// MaxLock is the longest name of a lock.
	MaxLock = 22

	maxToken = 32
	maxOwner = 128
	idLength = 26
)

// A charset says which bytes may stand in a word.
type charset [256]bool

func charsOf(s string) *charset {
	c := new(charset)
	for i := range len(s) {
		c[s[i]] = true
	}
	return c
}

// all says whether s consists of the characters alone.
func (c *charset) all(s string) bool {
	for i := range len(s) {
		if !c[s[i]] {
			return false
		}
	}
	return true
}

var (
	idChars   = charsOf("0123456789ABCDEFGHJKMNPQRSTVWXYZ") // Crockford's
	wordChars = charsOf("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")
)

// Validate checks the elements of one call: ErrTooMany, or the first error of check with the element's place.
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

// invalid says which part of an element is wrong.
func invalid(what string, value any) error {
	return fmt.Errorf("%s %q: %w", what, fmt.Sprint(value), ErrInvalid)
}

// IsWord says whether s has 1 to most characters, all of [A-Za-z0-9_-]: scripts use the others as separators.
func IsWord(s string, most int) bool {
	return s != "" && len(s) <= most && wordChars.all(s)
}

// checkID wants a bare ULID: 26 characters that fit 128 bits.
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

// ValidateToken returns ErrInvalid for what no lease has. The empty token passes: it is looked for and found
// nowhere.
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

// Validate returns ErrInvalid unless id and lane can be those of an item.
func (r Ref) Validate() error { return errors.Join(ValidateLane(r.Lane), ValidateID(r.ID)) }

// Validate returns ErrInvalid for an item that cannot be held.
func (i Item) Validate() error {
	if i.Lock != "" && !IsWord(i.Lock, MaxLock) {
		return invalid("lock", i.Lock)
	}
	return i.Ref().Validate()
}

// Validate returns ErrInvalid for what cannot be a lease.
func (l LeaseRef) Validate() error { return errors.Join(l.Ref.Validate(), ValidateToken(l.Token)) }

// validateNext wants a lease of the same lane, or none.
func (l LeaseRef) validateNext(lane int64) error {
	switch {
	case l.ID == "":
		return nil
	case l.Lane != lane:
		return invalid("lane of next", l.Lane)
	}
	return l.Validate()
}

// Validate returns ErrInvalid for what cannot be an ended lease.
func (e EndedLease) Validate() error {
	return errors.Join(e.LeaseRef.Validate(), e.Next.validateNext(e.Lane))
}

// Validate returns ErrInvalid for a settlement without an outcome, or of what cannot be a lease.
func (s Settlement) Validate() error {
	switch {
	case s.Outcome < Ack || s.Outcome > Bury:
		return invalid("outcome", int(s.Outcome))
	case s.Signal < NoSignal || s.Signal > Unanswered:
		return invalid("signal", int(s.Signal))
	}
	return errors.Join(s.Next.validateNext(s.Lane), ValidateToken(s.Token), s.Item.Validate())
}

// Validate returns ErrInvalid for what cannot be a lease.
func (l Lease) Validate() error { return errors.Join(ValidateToken(l.Token), l.Item.Validate()) }

// ValidateRunning returns ErrInvalid for what cannot be a lease that runs.
func (l Lease) ValidateRunning() error {
	return errors.Join(checkWord("token", l.Token, maxToken), l.Item.Validate())
}

// ValidateLocking returns ErrInvalid for what cannot ask for a lock.
func (l Lease) ValidateLocking() error {
	return errors.Join(checkWord("lock", l.Lock, MaxLock), l.ValidateRunning())
}

// Validate returns ErrInvalid for a setting out of bounds.
func (s LaneSetting) Validate() error {
	switch {
	case s.Limit < 0:
		return invalid("limit", s.Limit)
	case s.Every < 0 || s.Every > 0 && s.Every < time.Microsecond:
		return invalid("time between attempts", s.Every)
	}
	return ValidateLane(s.Lane)
}

// Validate returns ErrInvalid for an unlock without a lock or with malformed waiters, and ErrTooMany for too
// many.
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

// Validate returns ErrInvalid for a claim out of bounds.
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

func validatePrefetch(lanes []LanePrefetch) error {
	for i, p := range lanes {
		twice := slices.ContainsFunc(lanes[:i], func(q LanePrefetch) bool { return q.Lane == p.Lane })
		if p.Lane < 1 || p.Max < 0 || p.Max > MaxClaim || twice {
			return fmt.Errorf("claim: %w", invalid("prefetch", p))
		}
	}
	return nil
}

// Validate returns ErrInvalid for a horizon or a token that cannot be.
func (a Advance) Validate() error {
	if a.Horizon != 0 && a.Horizon < time.Millisecond {
		return fmt.Errorf("advance: %w", invalid("horizon", a.Horizon))
	}
	if err := errors.Join(checkWord("token", a.Token, maxToken), ValidateToken(a.After)); err != nil {
		return fmt.Errorf("advance: %w", err)
	}
	return nil
}

// ValidateShard returns ErrInvalid for a shard that is not one of so many.
func ValidateShard(operation string, shard, shards int) error {
	if shard < 0 || shard >= shards {
		return fmt.Errorf("%s: shard %d of %d: %w", operation, shard, shards, ErrInvalid)
	}
	return nil
}
