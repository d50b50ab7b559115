package memq

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/schedule"
)

const (
	// maxTime is the latest time that an index can hold: what a sorted set's score holds exactly. Later ones are taken
	// for it.
	maxTime = 1 << 53
	// maxEvery is the longest time between two attempts, in nanoseconds: 104 days. Longer ones are taken for it.
	maxEvery = 1<<53 - 1
	// maxClaim is the most items that one claim leases.
	maxClaim = 256
	// maxToken and maxLock are the longest token and the longest name of a lock.
	maxToken = 32
	maxLock  = 22
	// maxOwner is the longest name of a claimer.
	maxOwner = 128
)

// word says whether s has 1 to most characters, all of [A-Za-z0-9_-].
func word(s string, most int) bool {
	if s == "" || len(s) > most {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-') {
			return false
		}
	}
	return true
}

// checkAll calls check for each of n elements and names the operation and the element that it refuses first.
func checkAll(operation string, n int, check func(i int) error) error {
	if n > schedule.MaxBatch {
		return fmt.Errorf("%s: %d elements: %w", operation, n, schedule.ErrTooMany)
	}
	for i := range n {
		if err := check(i); err != nil {
			return fmt.Errorf("%s: element %d: %w", operation, i, err)
		}
	}
	return nil
}

func checkRef(id string, lane int64) error {
	if _, ok := parseKey(id); !ok {
		return fmt.Errorf("id %q: %w", id, schedule.ErrInvalid)
	}
	if lane <= 0 {
		return fmt.Errorf("lane %d: %w", lane, schedule.ErrInvalid)
	}
	return nil
}

func checkItem(it schedule.Item) error {
	if it.Lock != "" && !word(it.Lock, maxLock) {
		return fmt.Errorf("lock %q: %w", it.Lock, schedule.ErrInvalid)
	}
	return checkRef(it.ID, it.Lane)
}

// checkToken lets the empty token pass: it is nobody's, so it matches no lease.
func checkToken(token string) error {
	if token != "" && !word(token, maxToken) {
		return fmt.Errorf("token %q: %w", token, schedule.ErrInvalid)
	}
	return nil
}

func checkSettlement(s schedule.Settlement) error {
	if s.Outcome < schedule.Ack || s.Outcome > schedule.Bury {
		return fmt.Errorf("outcome %d: %w", s.Outcome, schedule.ErrInvalid)
	}
	if s.Signal < schedule.NoSignal || s.Signal > schedule.Unanswered {
		return fmt.Errorf("signal %d: %w", s.Signal, schedule.ErrInvalid)
	}
	if s.Next != nil {
		if err := checkNext(s.Next, s.Lane); err != nil {
			return err
		}
	}
	return errors.Join(checkToken(s.Token), checkItem(s.Item))
}

func checkAdoption(a schedule.Adoption) error {
	if !word(a.Token, maxToken) {
		return fmt.Errorf("token %q: %w", a.Token, schedule.ErrInvalid)
	}
	return checkItem(a.Item)
}

func checkSetting(s schedule.LaneSetting) error {
	if s.Lane <= 0 || s.Limit < 0 {
		return fmt.Errorf("lane %d with limit %d: %w", s.Lane, s.Limit, schedule.ErrInvalid)
	}
	if s.Every < 0 || s.Every > 0 && s.Every < time.Microsecond {
		return fmt.Errorf("lane %d with %s between attempts: %w", s.Lane, s.Every, schedule.ErrInvalid)
	}
	return nil
}

func checkLock(r schedule.LockRequest) error {
	if !word(r.Lock, maxLock) {
		return fmt.Errorf("lock %q: %w", r.Lock, schedule.ErrInvalid)
	}
	if !word(r.Token, maxToken) {
		return fmt.Errorf("token %q: %w", r.Token, schedule.ErrInvalid)
	}
	return checkRef(r.ID, r.Lane)
}

func checkUnlock(u schedule.Unlock) error {
	if !word(u.Lock, maxLock) {
		return fmt.Errorf("lock %q: %w", u.Lock, schedule.ErrInvalid)
	}
	if len(u.Gone)+len(u.Skip) > schedule.MaxBatch {
		return fmt.Errorf("%d waiters: %w", len(u.Gone)+len(u.Skip), schedule.ErrTooMany)
	}
	for _, ids := range [2][]string{u.Gone, u.Skip} {
		for _, id := range ids {
			if _, ok := parseKey(id); !ok {
				return fmt.Errorf("waiter %q: %w", id, schedule.ErrInvalid)
			}
		}
	}
	return checkToken(u.Token)
}

func checkClaim(shard int, r schedule.ClaimRequest) error {
	var wrong string
	switch {
	case shard != 0:
		wrong = fmt.Sprintf("shard %d", shard)
	case r.Owner == "" || len(r.Owner) > maxOwner:
		wrong = fmt.Sprintf("owner %q", r.Owner)
	case !word(r.Token, maxToken):
		wrong = fmt.Sprintf("token %q", r.Token)
	case r.Max < 0 || r.Max > maxClaim:
		wrong = fmt.Sprintf("max %d", r.Max)
	case r.Lease < time.Millisecond:
		wrong = fmt.Sprintf("lease %s", r.Lease)
	case r.Lead < 0 || r.Lead > schedule.MaxLead:
		wrong = fmt.Sprintf("lead %s", r.Lead)
	case r.LaneLimit < 1:
		wrong = fmt.Sprintf("lane limit %d", r.LaneLimit)
	case len(r.Ended) > schedule.MaxEnded:
		wrong = fmt.Sprintf("%d ended leases", len(r.Ended))
	default:
		return errors.Join(checkAll("claim", len(r.Ended), func(i int) error {
			e := &r.Ended[i]
			return errors.Join(checkRef(e.ID, e.Lane), checkToken(e.Token), checkNext(&e.Next, e.Lane))
		}), checkPrefetch(r.Prefetch))
	}
	return fmt.Errorf("claim: %s: %w", wrong, schedule.ErrInvalid)
}

// checkNext wants a lease of the same lane, or none.
func checkNext(next *schedule.LeaseRef, lane int64) error {
	switch {
	case next.ID == "":
		return nil
	case next.Lane != lane:
		return fmt.Errorf("next of lane %d in lane %d: %w", next.Lane, lane, schedule.ErrInvalid)
	}
	return errors.Join(checkRef(next.ID, next.Lane), checkToken(next.Token))
}

func checkPrefetch(lanes []schedule.LanePrefetch) error {
	if len(lanes) > schedule.MaxPrefetch {
		return fmt.Errorf("claim: %d lanes to prefetch: %w", len(lanes), schedule.ErrInvalid)
	}
	for i, p := range lanes {
		if p.Lane < 1 || p.Max < 0 || p.Max > maxClaim ||
			slices.ContainsFunc(lanes[:i], func(q schedule.LanePrefetch) bool { return q.Lane == p.Lane }) {
			return fmt.Errorf("claim: prefetch %+v: %w", p, schedule.ErrInvalid)
		}
	}
	return nil
}

func checkShard(operation string, shard int) error {
	if shard != 0 {
		return fmt.Errorf("%s: shard %d: %w", operation, shard, schedule.ErrInvalid)
	}
	return nil
}
