package ui

import (
	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A cure helps a callback that waits. Retry sends it now. Otherwise Link leads to what helps, with the text
// of Key; Asks is true if that is a form.
type cure struct {
	Retry, Asks bool
	Link, Key   string
}

// explain sets why the callback is not delivered, and its cure.
func (p *orderPage) explain(o *orderRow, x *control.Explanation) {
	switch {
	case o.State == store.Dead, o.State == store.Canceled:
		o.Why, o.Since = p.Or("reason.", string(o.Reason)), o.FinishedAt
	case !o.State.Terminal() && len(x.Blocking) == 0:
		o.Why = p.T("why." + string(o.State))
	case !o.State.Terminal():
		b := &x.Blocking[0]
		o.Why, o.Since, o.Until = p.Or("why.title.", b.Code), b.Since, b.Until
		if b.Code == control.BlockNotDue || p.Forever(b.Until) {
			o.Until = 0
		}
		if b.Code == control.BlockNotDue {
			o.Why, o.Since = p.T("order.next"), o.DueAt
		}
		o.Cure = p.cure(o, b)
	}
	if o.State == store.Dead && !o.PayloadPurged {
		o.Cure = ask("bulk.retry", "/callbacks/"+o.FullID+"/retry")
	}
	if (o.Cure.Retry || o.Cure.Asks) && !p.Can(string(store.ScopeOperate)) {
		o.Cure = cure{}
	}
}

func ask(key, path string, pairs ...string) cure {
	return cure{Asks: true, Link: link(path, pairs...), Key: key}
}

// cure returns what helps against a block. An attempt in progress needs no help.
func (p *orderPage) cure(o *orderRow, b *control.Block) cure {
	endpoint := "/endpoints/" + o.EndpointFullID
	switch b.Code {
	case control.BlockNotDue, control.BlockBreakerOpen, control.BlockRetryAfter, control.BlockRate,
		control.BlockIndexMissing:
		return cure{Retry: true}
	case control.BlockProjectPaused:
		return ask("order.resume", "/system/resume")
	case control.BlockEndpointPaused:
		return ask("order.resume", endpoint+"/resume")
	case control.BlockLanePaused:
		return ask("order.resume", "/lanes/resume", "key", o.Lane)
	case control.BlockEndpointOff:
		return ask("order.enable", endpoint+"/enable")
	case control.BlockEndpointDeleted:
		return ask("act.cancel.button", "/callbacks/"+o.FullID+"/cancel")
	case control.BlockConcurrency:
		return ask("lanes.limits.button", "/lanes/limits", "key", o.Lane)
	case control.BlockOrder, control.BlockLock:
		if b.Other != "" {
			return cure{Link: Root + "/callbacks/" + store.CallbackPrefix + b.Other, Key: "order.other"}
		}
	case control.BlockSendingStopped:
		if p.Root() {
			return ask("order.resume", "/system/start")
		}
	}
	switch {
	case b.Code == control.BlockAttempting:
		return cure{}
	case p.Root():
		return cure{Link: Root + "/system", Key: "system.title"}
	}
	return cure{Link: Root + "/callbacks/" + o.FullID, Key: "order.details"}
}
