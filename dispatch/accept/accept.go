package accept

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/process"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// MaxAccept is the most submissions of one call of Accept.
const MaxAccept = 1000

// Accept validates the submissions, commits the valid ones in one transaction, and returns a result for each,
// in their order. A callback whose result has no error is in SQL. The index is updated afterwards. If that
// fails, or the process dies before, the next sweep finds the row.
//
// The error of a result is a *store.InvalidError, store.ErrIdempotencyMismatch,
// store.ErrIdempotencyInProgress, store.ErrOpenQuota, store.ErrLaneQuota, or the error of reading settings.
// If Accept itself returns an error, no submission is known to be accepted: it is store.ErrUnavailable or the
// context's (see Store.Accept), or the project is unknown or there are more than MaxAccept submissions.
func (ac *Accepter) Accept(ctx context.Context, project string, subs []Submission) ([]store.Accepted, error) {
	if len(subs) > MaxAccept {
		return nil, fmt.Errorf("accept: %d submissions; at most %d in one call", len(subs), MaxAccept)
	}
	v, err := ac.view(ctx, project, subs)
	if err != nil {
		return nil, fmt.Errorf("accept: %w", err)
	}
	now := time.UnixMilli(ac.clock.Now())
	drafts := make([]store.Draft, 0, len(subs))
	refused := make(map[int]error)
	for i := range subs {
		draft, err := ac.draft(v, project, &subs[i], now)
		if err == nil {
			err = ac.secure(ctx, &draft)
		}
		if err == nil && draft.Idempotency != nil && !ac.keys.begin(project, draft.Idempotency) {
			err = store.ErrIdempotencyInProgress
			if sameCall(drafts, draft.Idempotency) {
				err = nil // a repetition within this batch is a replay of the first, not a concurrent request
			}
		} else if err == nil && draft.Idempotency != nil {
			defer ac.keys.end(project, draft.Idempotency)
		}
		if err != nil {
			refused[i] = err
			continue
		}
		drafts = append(drafts, draft)
	}
	accepted, err := ac.commit(ctx, drafts, &v.Project, v.Quotas.OpenCallbacks)
	if err != nil {
		return nil, fmt.Errorf("accept: %w", err)
	}
	if len(refused) == 0 {
		return accepted, nil
	}
	all := make([]store.Accepted, len(subs))
	for i := range all {
		if err, bad := refused[i]; bad {
			all[i].Err = err
		} else {
			all[i], accepted = accepted[0], accepted[1:]
		}
	}
	return all, nil
}

// commit commits drafts of a project as far as its quota of open callbacks allows (zero: no quota), returns a
// result for each in their order, and adds the accepted ones to the index. A crash between the two steps
// leaves the rows to the sweep.
func (ac *Accepter) commit(
	ctx context.Context, drafts []store.Draft, p *store.Project, quota int64,
) ([]store.Accepted, error) {
	if len(drafts) == 0 {
		return nil, nil
	}
	process.Failpoint("before_accept_commit")
	creation := ac.o.Tracer.Create(ctx, drafts)
	accepted, err := ac.acceptWithin(ctx, quota, drafts)
	if err != nil {
		return nil, err
	}
	creation.End(accepted)
	process.Failpoint("after_accept_commit")
	now := ac.clock.Now()
	ac.observer.Accepted(accepted, now)
	if p.PausedUntil > now && slices.ContainsFunc(accepted, func(a store.Accepted) bool {
		return a.Err == nil && !ac.index.Paused(a.Callback.LaneID)
	}) {
		// A lane that was just created is paused like its project. The index must know that before it gets
		// the callback.
		ac.SettingsChanged(ctx)
	}
	for i := range accepted {
		a := &accepted[i]
		if a.Err != nil {
			continue
		}
		if len(a.Superseded) > 0 {
			ac.observer.Ended(len(a.Superseded), store.Canceled, store.Superseded)
			ac.index.Ended(ctx, a.Superseded)
		}
		if a.Callback.State != store.Scheduled {
			continue
		}
		// Add a replay as well: its first request may have died before it reached the index. Adding a present
		// item changes nothing.
		ac.index.Add(index.Item(&a.Callback))
	}
	process.Failpoint("after_enqueue")
	return accepted, nil
}

// acceptDrafts commits drafts. If SQL cannot commit, claims stop too.
func (ac *Accepter) acceptDrafts(ctx context.Context, drafts []store.Draft) ([]store.Accepted, error) {
	accepted, err := ac.o.Store.Accept(ctx, drafts)
	if errors.Is(err, store.ErrUnavailable) {
		ac.index.SQLFailed(err)
	}
	return accepted, err
}

func sameCall(drafts []store.Draft, id *store.Idempotency) bool {
	for i := range drafts {
		if other := drafts[i].Idempotency; other != nil && other.Key == id.Key && other.Route == id.Route {
			return true
		}
	}
	return false
}

// keysInUse are the idempotency keys whose first request this process is committing. A concurrent repetition
// in this process then gets store.ErrIdempotencyInProgress. Across processes the guard is SQL, where a key is
// unique in its project and route.
type keysInUse struct {
	mu   sync.Mutex
	keys map[usedKey]struct{}
}

type usedKey struct{ project, route, key string }

// begin takes the key, or returns false if another request has it.
func (p *keysInUse) begin(project string, id *store.Idempotency) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := usedKey{project, id.Route, id.Key}
	if _, taken := p.keys[k]; taken {
		return false
	}
	if p.keys == nil {
		p.keys = make(map[usedKey]struct{})
	}
	p.keys[k] = struct{}{}
	return true
}

func (p *keysInUse) end(project string, id *store.Idempotency) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.keys, usedKey{project, id.Route, id.Key})
}

// A Submission is a callback as a caller describes it, decoded but not validated. Accept validates every
// field. Its *store.InvalidError names each wrong field in the spelling of the API.
type Submission struct {
	// URL or Endpoint is required, where Endpoint is an id or an external id. Both are allowed if the
	// endpoint allows another URL.
	URL      string
	Endpoint string
	// Method is converted to upper case; empty means POST.
	Method  string
	Headers []store.Header
	Topic   string
	Ref     string

	// Body is nil if the caller gave none. BodyField is the field that contained it ("payload", "body" or
	// "body_base64"), which decides the content type if ContentType is empty.
	Body        []byte
	BodyField   string
	ContentType string

	// Choice selects policy, success rule and signer. Its empty fields are taken from the endpoint, then the
	// project.
	Choice

	// At most one of DueAt (Unix milliseconds) and Delay; nil: now.
	DueAt     *int64
	Delay     *time.Duration
	ExpiresIn *time.Duration

	LockKey string
	// Order is "" or "strict".
	Order     string
	Lane      string
	Supersede bool
	Version   *int64
	// StartAttempt is the number of the first attempt; zero means 1.
	StartAttempt int
	Labels       map[string]string
	// CreatedBy is Callback.CreatedBy. It may be empty, and is no part of an idempotent request.
	CreatedBy string
	// Own: the program itself sends the callback, so its topic may be one of store.OwnTopics.
	Own bool

	// IdempotencyKey is empty for none. Route and Fingerprint, a hash of the request's bytes, belong to it.
	IdempotencyKey string
	Route          string
	Fingerprint    []byte

	// Invalid are the errors of fields that could not be decoded. Accept adds its own to them.
	Invalid []store.FieldError
}
