package redisq

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

// What the scripts can hold. Checked here, before anything is sent, so that no script meets a part of a call that it
// would have to refuse.
const (
	idLength = 26
	maxClaim = 256
	maxToken = 32
	maxLock  = 22
	maxOwner = 128
)

const (
	crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	wordChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
)

// invalid says which part of an element is wrong.
func invalid(what string, value any) error {
	return fmt.Errorf("%s %q: %w", what, fmt.Sprint(value), schedule.ErrInvalid)
}

// isWord says whether s has 1 to most characters, none of which the scripts use as a separator.
func isWord(s string, most int) bool {
	return s != "" && len(s) <= most && strings.Trim(s, wordChars) == ""
}

// checkID wants a bare ULID: 26 characters that fit 128 bits.
func checkID(what, id string) error {
	if len(id) != idLength || id[0] > '7' || strings.Trim(id, crockford) != "" {
		return invalid(what, id)
	}
	return nil
}

func checkRef(id string, lane int64) error {
	if lane <= 0 {
		return invalid("lane", lane)
	}
	return checkID("id", id)
}

func checkItem(it schedule.Item) error {
	if it.Lock != "" && !isWord(it.Lock, maxLock) {
		return invalid("lock", it.Lock)
	}
	return checkRef(it.ID, it.Lane)
}

// checkToken lets the empty token pass where a lease is only looked for: it is nobody's.
func checkToken(token string) error {
	if token != "" && !isWord(token, maxToken) {
		return invalid("token", token)
	}
	return nil
}

func checkSettlement(s schedule.Settlement) error {
	if outcomes[s.Outcome] == "" {
		return invalid("outcome", int(s.Outcome))
	}
	if s.Signal < schedule.NoSignal || s.Signal > schedule.Unanswered {
		return invalid("signal", int(s.Signal))
	}
	if s.Next != nil {
		if err := checkNext(*s.Next, s.Lane); err != nil {
			return err
		}
	}
	return errors.Join(checkToken(s.Token), checkItem(s.Item))
}

// checkNext wants a lease of the same lane, or none.
func checkNext(next schedule.LeaseRef, lane int64) error {
	switch {
	case next.ID == "":
		return nil
	case next.Lane != lane:
		return invalid("lane of next", next.Lane)
	}
	return errors.Join(checkRef(next.ID, next.Lane), checkToken(next.Token))
}

func checkAdoption(a schedule.Adoption) error {
	if !isWord(a.Token, maxToken) {
		return invalid("token", a.Token)
	}
	return checkItem(a.Item)
}

func checkSetting(s schedule.LaneSetting) error {
	if s.Lane <= 0 {
		return invalid("lane", s.Lane)
	}
	if s.Limit < 0 {
		return invalid("limit", s.Limit)
	}
	if s.Every < 0 || s.Every > 0 && s.Every < time.Microsecond {
		return invalid("time between attempts", s.Every)
	}
	return nil
}

func checkLock(r schedule.LockRequest) error {
	if !isWord(r.Lock, maxLock) {
		return invalid("lock", r.Lock)
	}
	if !isWord(r.Token, maxToken) {
		return invalid("token", r.Token)
	}
	return checkRef(r.ID, r.Lane)
}

func checkUnlock(u schedule.Unlock) error {
	if !isWord(u.Lock, maxLock) {
		return invalid("lock", u.Lock)
	}
	if n := len(u.Gone) + len(u.Skip); n > schedule.MaxBatch {
		return fmt.Errorf("%d waiters: %w", n, schedule.ErrTooMany)
	}
	for _, ids := range [][]string{u.Gone, u.Skip} {
		for _, id := range ids {
			if err := checkID("waiter", id); err != nil {
				return err
			}
		}
	}
	return checkToken(u.Token)
}

func checkClaim(r schedule.ClaimRequest) error {
	var err error
	switch {
	case r.Owner == "" || len(r.Owner) > maxOwner:
		err = invalid("owner", r.Owner)
	case !isWord(r.Token, maxToken):
		err = invalid("token", r.Token)
	case r.Max < 0 || r.Max > maxClaim:
		err = invalid("max", r.Max)
	case r.Lease < time.Millisecond:
		err = invalid("lease", r.Lease)
	case r.Lead < 0 || r.Lead > schedule.MaxLead:
		err = invalid("lead", r.Lead)
	case r.LaneLimit < 1:
		err = invalid("lane limit", r.LaneLimit)
	case len(r.Ended) > schedule.MaxEnded:
		err = invalid("ended", len(r.Ended))
	case len(r.Prefetch) > schedule.MaxPrefetch:
		err = invalid("prefetch", len(r.Prefetch))
	}
	for i := range r.Ended {
		e := &r.Ended[i]
		if wrong := errors.Join(checkRef(e.ID, e.Lane), checkToken(e.Token), checkNext(e.Next, e.Lane)); wrong != nil {
			err = wrong
		}
	}
	for i, p := range r.Prefetch {
		if p.Lane < 1 || p.Max < 0 || p.Max > maxClaim ||
			slices.ContainsFunc(r.Prefetch[:i], func(q schedule.LanePrefetch) bool { return q.Lane == p.Lane }) {
			err = invalid("prefetch", p)
		}
	}
	if err != nil {
		return fmt.Errorf("claim: %w", err)
	}
	return nil
}

func (ix *Index) checkShard(operation string, shard int) error {
	if shard < 0 || shard >= len(ix.keys) {
		return fmt.Errorf("%s: shard %d of %d: %w", operation, shard, len(ix.keys), schedule.ErrInvalid)
	}
	return nil
}
