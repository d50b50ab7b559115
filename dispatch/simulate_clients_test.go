package dispatch_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/accept"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// This file plays the clients that submit callbacks, and the people who cancel, retry and reschedule them.

// choose returns the process in the slot, or the next one that accepts calls; nil: none does.
func (s *simulation) choose(slot int) *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.slots {
		if p := s.slots[(slot+i)%len(s.slots)]; p != nil && p.open.Load() {
			return p
		}
	}
	return nil
}

// callTime is the timeout of a client.
const callTime = 5 * time.Second

// submit submits callbacks of the plan in one call, and repeats it until a process has confirmed all of them.
func (s *simulation) submit(ctx context.Context, places []int) {
	first := &s.plan.callbacks[places[0]]
	for try := 0; len(places) > 0 && ctx.Err() == nil; try++ {
		if try > 0 {
			time.Sleep(first.pause)
		}
		p := s.choose(first.via + try)
		if p == nil {
			continue
		}
		subs := make([]accept.Submission, len(places))
		for i, place := range places {
			subs[i] = submissionOf(&s.plan.callbacks[place])
		}
		cctx, cancel := context.WithTimeout(ctx, callTime)
		receipts, err := p.engine.Accept(cctx, project, subs)
		cancel()
		if err != nil || p.dead() {
			continue // the reply of a dead process reaches no client
		}
		var left []int
		s.mu.Lock()
		for i := range receipts {
			switch {
			case receipts[i].Err == nil:
				s.accepted[places[i]] = receipts[i].Callback.ID
			case errors.Is(receipts[i].Err, store.ErrIdempotencyInProgress):
				left = append(left, places[i])
			default:
				s.problems = append(s.problems,
					fmt.Sprintf("%s was refused: %v", subs[i].Ref, receipts[i].Err))
			}
		}
		s.mu.Unlock()
		places = left
	}
}

func submissionOf(c *planned) accept.Submission {
	body := bodyOf(c)
	sub := accept.Submission{
		URL: "https://" + c.host + "/notify", Body: body, Ref: c.ref, LockKey: c.lock,
		Choice: accept.Choice{PolicyGiven: true, Policy: store.Policy{
			Tiers: c.tiers, Timeout: c.timeout, Jitter: c.jitter, RetryAfterCap: time.Minute,
			StopOn: c.stopOn,
		}},
		IdempotencyKey: c.ref, Route: "callbacks", Fingerprint: body,
	}
	if c.unsigned {
		sub.Signer = "none"
	}
	if c.delay > 0 {
		sub.Delay = &c.delay
	}
	if c.expires > 0 {
		sub.ExpiresIn = &c.expires
	}
	return sub
}

// sleepUntil sleeps, and returns false if ctx ends before.
func sleepUntil(ctx context.Context, at time.Time) bool {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// perform carries out one act, once, whatever its result.
func (s *simulation) perform(ctx context.Context, a act) {
	s.mu.Lock()
	id, known := s.accepted[a.callback]
	s.mu.Unlock()
	p := s.choose(a.via)
	if !known || p == nil {
		return
	}
	d := done{act: a, at: time.Now()}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	retry := func(r control.RetryRequest) error {
		_, err := p.engine.Retry(ctx, project, id, r, operator)
		return err
	}
	switch a.do {
	case cancels:
		var c store.CanceledCallback
		c, d.err = p.engine.Cancel(ctx, project, id, operator)
		d.result = c.Result
	case cancelsRef:
		var list []store.CanceledCallback
		list, d.err = p.engine.CancelRef(ctx, project,
			control.CancelRefRequest{Ref: s.plan.callbacks[a.callback].ref}, operator)
		d.result = store.CancelAlreadyTerminal
		if len(list) > 0 {
			d.result = list[0].Result
		}
	case retries:
		d.err = retry(control.RetryRequest{})
	case restarts:
		d.err = retry(control.RetryRequest{Ladder: store.Restart})
	case redirects:
		d.err = retry(control.RetryRequest{URL: "https://elsewhere.example/notify"})
	case reschedules:
		_, d.err = p.engine.Reschedule(ctx, project, id, nil, &a.delay, operator)
	}
	if d.err == nil && p.dead() {
		d.err = errCut
	}
	s.mu.Lock()
	s.acted[a.callback] = append(s.acted[a.callback], d)
	s.met["act "+string(a.do)]++
	s.mu.Unlock()
}
