package accept

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/index"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/part"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// MaxAccept is the most submissions that one call of Accept takes.
const MaxAccept = 1000

// Accept checks the submissions, commits the valid ones in one transaction, and returns an answer for each,
// in their order. A callback whose answer has no error is in SQL. The index is told afterwards; if it cannot
// be told, the next sweep finds the row.
//
// The error of an answer is a *store.InvalidError, store.ErrIdempotencyMismatch or
// store.ErrIdempotencyInProgress. The error of Accept itself is store.ErrUnavailable or the context's:
// nothing was accepted then.
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
				err = nil // Twice in one batch is a replay of the first, not a race with another request.
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

// commit makes drafts of a project durable, as far as a quota of open callbacks has room for them (zero:
// there is none), answers each in its place, and has the index told.
func (ac *Accepter) commit(
	ctx context.Context, drafts []store.Draft, p *store.Project, quota int64,
) ([]store.Accepted, error) {
	if len(drafts) == 0 {
		return nil, nil
	}
	part.Failpoint("before_accept_commit")
	accepted, err := ac.acceptWithin(ctx, quota, drafts)
	if err != nil {
		return nil, err
	}
	part.Failpoint("after_accept_commit")
	now := ac.clock.Now()
	ac.observer.Accepted(accepted, now)
	if p.PausedUntil > now && slices.ContainsFunc(accepted, func(a store.Accepted) bool {
		return a.Err == nil && !ac.index.Paused(a.Callback.LaneID)
	}) {
		// a lane that was just made is paused, too, and the index is to know it before the callback
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
		// A replay is told to the index too: where the first reply was lost, nobody has told it yet. What it
		// holds stays.
		ac.index.Add(index.Item(&a.Callback))
	}
	part.Failpoint("after_enqueue")
	return accepted, nil
}

// acceptDrafts commits drafts. That SQL cannot commit stops the claims, too.
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

// progress is the idempotency keys whose first request is being committed by this process.
type progress struct {
	mu   sync.Mutex
	keys map[progressKey]struct{}
}

type progressKey struct{ project, route, key string }

// begin says whether the key was free, and takes it.
func (p *progress) begin(project string, id *store.Idempotency) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := progressKey{project, id.Route, id.Key}
	if _, taken := p.keys[k]; taken {
		return false
	}
	if p.keys == nil {
		p.keys = make(map[progressKey]struct{})
	}
	p.keys[k] = struct{}{}
	return true
}

func (p *progress) end(project string, id *store.Idempotency) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.keys, progressKey{project, id.Route, id.Key})
}

// A Submission is a callback as a caller asks for it, decoded but not yet judged: Accept validates every
// field and answers with a *store.InvalidError that names each wrong one as the API spells it.
type Submission struct {
	// URL, or Endpoint: an endpoint's id or external id; or both, if the endpoint allows it.
	URL      string
	Endpoint string
	// Method is upper-cased by Accept; empty means POST.
	Method  string
	Headers []store.Header
	Topic   string
	Ref     string

	// Body is nil when the caller gave none. ContentType is the caller's; BodyField names where the body
	// stood ("payload", "body" or "body_base64"), which decides the default content type.
	Body        []byte
	BodyField   string
	ContentType string

	// Choice is how it is sent. What it leaves open is its endpoint's to say, then its project's.
	Choice

	// DueAt in Unix milliseconds or Delay, at most one; nil: now.
	DueAt     *int64
	Delay     *time.Duration
	ExpiresIn *time.Duration

	LockKey string
	// Order is "" or "strict".
	Order     string
	Lane      string
	Supersede bool
	Version   *int64
	// StartAttempt is 1 for the first; 0 means 1.
	StartAttempt int
	Labels       map[string]string

	// IdempotencyKey is empty for none; Route and Fingerprint come with it. Fingerprint is a hash of the
	// request's bytes.
	IdempotencyKey string
	Route          string
	Fingerprint    []byte

	// Invalid are fields that could not even be decoded; Accept adds its own findings to them.
	Invalid []store.FieldError
}
