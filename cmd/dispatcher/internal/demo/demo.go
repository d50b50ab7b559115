// Package demo shows a newcomer the dispatcher at work: a server, a flaky receiver, thirty payments and a
// poll, with a judgement of what arrived. It uses ports and a directory of its own and leaves nothing behind.
package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/app"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/listen"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/remote"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/ui"
)

// Command is a newcomer's first look.
type Command struct {
	Exit bool `help:"End when all callbacks are terminal: with 0 if all ended as foreseen, else with 1."`
}

const (
	// demoPace is the time between two payments, so that a person can watch.
	demoPace = 100 * time.Millisecond
	// demoLimit is how long the demo waits for all callbacks to become terminal.
	demoLimit = 60 * time.Second
	// demoPoll is how often it looks.
	demoPoll = 200 * time.Millisecond
	// demoLane is the one that all payments share: they go to one destination.
	demoLane = "demo-shop"
)

// Run shows the dispatcher at work, on ports and in a directory of its own, and judges what happened.
func (cmd *Command) Run(ctx context.Context, c *console.Console) (err error) {
	dir, err := os.MkdirTemp("", "dispatcher-demo-")
	if err != nil {
		return fmt.Errorf("make a directory for the demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	day := time.Now()
	payments, err := demoPayments(day)
	if err != nil {
		return err
	}
	payments = append(payments, demoRefund(day)...)
	receiver, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for the demo's receiver: %w", err)
	}
	settings, err := config.EmbeddedIn(dir)
	if err != nil {
		return err
	}
	quiet := &console.Console{In: c.In, Out: c.Out, Err: c.Err, Env: c.Env, Version: c.Version}
	srv, err := app.New(ctx, quiet, settings, app.NewLogger(c, settings))
	if err != nil {
		return errors.Join(err, receiver.Close())
	}
	d := &demo{c: c, srv: srv, payments: payments, receiver: receiver, live: newLive(c, len(payments))}
	d.shop = &shop{say: d.live.answered, payments: payments, inside: map[string]int{}}
	flags := remote.Flags{Server: "http://" + srv.Web.Addr().String(), Key: settings.AdminKey,
		Project: store.DefaultProject}
	d.cl, err = remote.New(c, flags)
	if err != nil {
		return errors.Join(err, receiver.Close(), srv.Close())
	}
	return errors.Join(d.run(ctx, cmd.Exit), srv.Close())
}

// A demo is one run.
type demo struct {
	c        *console.Console
	srv      *app.App
	cl       *remote.Client
	shop     *shop
	receiver net.Listener
	// payments are the thirty, the poll and its result.
	payments []payment
	live     *live
}

// run starts server and receiver, plays the plan, and leaves the server open unless exit is set.
func (d *demo) run(ctx context.Context, exit bool) error {
	life, end := context.WithCancelCause(ctx)
	defer end(nil)
	var parts sync.WaitGroup
	for name, run := range map[string]func(context.Context) error{
		"server":   d.srv.Run,
		"receiver": func(ctx context.Context) error { return listen.ServeUntilDone(ctx, d.receiver, d.shop) },
	} {
		parts.Go(func() {
			if err := run(life); err != nil {
				end(fmt.Errorf("%s: %w", name, err))
			}
		})
	}
	err := d.play(life, exit)
	if cause := context.Cause(life); err != nil && cause != nil {
		err = cause
	}
	end(nil)
	parts.Wait()
	if errors.Is(err, context.Canceled) && !exit {
		// Ctrl-C is how a person ends the demo.
		return nil
	}
	return err
}

// play sends the payments, watches them to their end, and judges.
func (d *demo) play(ctx context.Context, exit bool) error {
	d.introduce()
	if err := d.learnSecret(ctx); err != nil {
		return err
	}
	d.live.start()
	err := d.sendAll(ctx)
	if err == nil {
		err = d.watch(ctx)
	}
	d.live.stop()
	if err != nil {
		return err
	}
	asForeseen, err := d.judge(ctx)
	if err != nil {
		return err
	}
	if exit {
		if !asForeseen {
			return console.ErrPrinted
		}
		return nil
	}
	d.invite()
	<-ctx.Done()
	return context.Cause(ctx)
}

// introduce says what is going to happen.
func (d *demo) introduce() {
	tiers := schedule.Tiers(demoTiers)
	fmt.Fprintf(d.c.Out, `%s
A dispatcher (SQLite and index in this process) runs at %s.
Its admin pages are at %s; the key to sign in with is
%s
A shop's server, which is flaky, runs at http://%s.
%d payment notifications go out. Each is attempted until it is terminal: after a
failure at the tiers %s (the default ones are %s).
Beside them a bank is asked for a refund, every %s, until its answer is final;
then the shop is told.

`, d.c.Paint("dispatcher demo", console.Bold), d.cl.Base, d.pages(), d.srv.Settings.AdminKey,
		d.receiver.Addr(), len(d.payments)-2, tiers, schedule.Payment(), schedule.FormatDuration(pollTier))
}

// address is where a payment goes.
func (d *demo) address(p *payment) string {
	return fmt.Sprintf("http://%s%s", d.receiver.Addr(), p.path)
}

// learnSecret asks for the secret that signs for the shop, as an operator would who sets a receiver up.
func (d *demo) learnSecret(ctx context.Context) error {
	var answer struct {
		Secret string `json:"secret"`
	}
	if _, err := d.cl.Call(ctx, http.MethodGet, "/v1/secret?lane="+demoLane, nil, &answer); err != nil {
		return fmt.Errorf("ask for the signing secret: %w", err)
	}
	secret, err := sign.ParseSecret(answer.Secret)
	if err != nil {
		return fmt.Errorf("read the signing secret: %w", err)
	}
	d.shop.secret = secret
	return nil
}

// sendAll submits the payments one by one. Those of a pair go out together, so that they meet.
func (d *demo) sendAll(ctx context.Context) error {
	for i := range d.payments {
		p := &d.payments[i]
		if p.scenario.told { // the poll's end makes it
			continue
		}
		send := d.notify
		if p.scenario.asked {
			send = d.ask
		}
		cb, err := send(ctx, p)
		if err != nil {
			return fmt.Errorf("send %s: %w", p.name(), err)
		}
		p.id = cb.ID
		d.live.accepted(p)
		if p.lockKey != "" && p.topic != "payment.settled" {
			continue
		}
		console.Pause(ctx, demoPace)
		if _, err := d.observe(ctx); err != nil {
			return err
		}
	}
	return nil
}

// notify hands a payment over.
func (d *demo) notify(ctx context.Context, p *payment) (cb client.Callback, err error) {
	in := map[string]any{
		"url": d.address(p), "topic": p.topic, "ref": p.order, "lane": demoLane, "success": "body-success",
		"body": string(p.body), "content_type": "application/json",
		"policy": map[string]any{"tiers": tierTexts(p.scenario.tiers), "timeout": "5s"},
		"labels": map[string]string{"scenario": p.scenario.name},
	}
	if p.lockKey != "" {
		in["lock_key"] = p.lockKey
	}
	_, err = d.cl.Call(ctx, http.MethodPost, "/v1/callbacks", in, &cb)
	return cb, err
}

func tierTexts(tiers []time.Duration) []string {
	texts := make([]string, len(tiers))
	for i, t := range tiers {
		texts[i] = schedule.FormatDuration(t)
	}
	return texts
}

// watch looks at the callbacks until all are terminal, or the demo's time is up; what is not terminal then is
// for the judgement to say.
func (d *demo) watch(ctx context.Context) error {
	deadline := time.Now().Add(demoLimit)
	for time.Now().Before(deadline) {
		terminal, err := d.observe(ctx)
		if err != nil {
			return err
		}
		if terminal == len(d.payments) {
			return nil
		}
		console.Pause(ctx, demoPoll)
	}
	return nil
}

// observe shows what has changed since the last look, and counts the callbacks that are terminal.
func (d *demo) observe(ctx context.Context) (terminal int, err error) {
	byID, err := d.look(ctx)
	if err == nil {
		err = d.learnResult(ctx, byID)
	}
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if err != nil {
		return 0, err
	}
	for i := range d.payments {
		cb, ok := byID[d.payments[i].id]
		if !ok {
			continue
		}
		d.live.observed(&d.payments[i], &cb)
		if !cb.FinishedAt.IsZero() {
			terminal++
		}
	}
	return terminal, nil
}

// look reads all callbacks, by id.
func (d *demo) look(ctx context.Context) (map[string]client.Callback, error) {
	var page client.Page[client.Callback]
	if _, err := d.cl.Call(ctx, http.MethodGet, "/v1/callbacks?limit=500", nil, &page); err != nil {
		return nil, fmt.Errorf("look at the callbacks: %w", err)
	}
	byID := make(map[string]client.Callback, len(page.Data))
	for _, cb := range page.Data {
		byID[cb.ID] = cb
	}
	return byID, nil
}

// invite says what can be tried while the server is open.
func (d *demo) invite() {
	fmt.Fprintf(d.c.Out, `
The dispatcher stays open. Its admin pages are at

  %s

and the key to sign in with is %s. In another terminal:

  export DISPATCHER_SERVER=%s DISPATCHER_KEY=%s
  dispatcher callback list --state dead
  dispatcher callback get %s
  dispatcher poll get %s
  curl -H "Authorization: Bearer $DISPATCHER_KEY" $DISPATCHER_SERVER/v1/stats

Metrics are at http://%s/metrics. Ctrl-C ends the demo and removes its data.
`, d.pages(), d.srv.Settings.AdminKey, d.cl.Base, d.srv.Settings.AdminKey, d.dead().id, d.asked().id,
		d.srv.Web.OpsAddr())
}

// pages is where the admin pages are.
func (d *demo) pages() string { return d.cl.Base + ui.Root + "/" }

// dead is the payment that the plan lets die: the one worth looking at. asked and told are the poll and its
// result.
func (d *demo) dead() *payment {
	return first(d.payments, func(p *payment) bool { return p.scenario.state == "dead" })
}
func (d *demo) asked() *payment {
	return first(d.payments, func(p *payment) bool { return p.scenario.asked })
}
func (d *demo) told() *payment {
	return first(d.payments, func(p *payment) bool { return p.scenario.told })
}

// first returns the first payment of a kind; nil: there is none. It copies none, because others write to
// them.
func first(payments []payment, is func(*payment) bool) *payment {
	for i := range payments {
		if p := &payments[i]; is(p) {
			return p
		}
	}
	return nil
}
