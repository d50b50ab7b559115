package api_test

import (
	"context"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// somePoll is an open one with all that a poll can have.
func somePoll() dispatch.PollView {
	cb := sample()
	cb.Kind, cb.Method, cb.URL = store.Poll, "GET", "https://upstream.example/query?out_trade_no=7&mchid=9"
	const rule = `{"until":{"success":[{"pointer":"/trade_state","in":["SUCCESS"]}],"failure":[{"status":[404]}]},"hold_if":[{"pointer":"/code","eq":"BUSY"}],` +
		`"evaluate":["200-299",404],"error_budget":20}`
	cb.Success = store.Success{Rule: rule}
	return dispatch.PollView{
		Callback: cb, Rule: rule,
		Detail: store.PollDetail{
			Context: `{"channel": "alipay"}`, Errors: 3,
			OnResult: &store.ResultDraft{Callback: store.Callback{URL: "https://shop.example/notify?token=a", EndpointID: bareEndpoint, Topic: "payment.result", Ref: "o-1"}},
		},
	}
}

// AcceptPoll says what is wrong as the engine does: of the result callback, with its name before it.
func (e *engine) AcceptPoll(_ context.Context, project string, s dispatch.PollSubmission) (dispatch.Receipt, error) {
	wrong := slices.Clone(s.Invalid)
	if s.OnResult != nil {
		for _, w := range s.OnResult.Invalid {
			wrong = append(wrong, store.FieldError{Field: "on_result." + w.Field, Message: w.Message})
		}
	}
	if len(wrong) > 0 {
		return dispatch.Receipt{}, &store.InvalidError{Fields: wrong}
	}
	return dispatch.Receipt{Callback: e.callback, Replayed: e.replayed}, e.noted("AcceptPoll", project, "", store.Actor{}, s)
}

func (e *engine) ResolvePoll(_ context.Context, project, id string, r dispatch.ResolveRequest, by store.Actor) (store.ResolvedPoll, error) {
	if len(r.Invalid) > 0 {
		return store.ResolvedPoll{}, &store.InvalidError{Fields: r.Invalid}
	}
	cb := e.callback
	cb.Kind, cb.State, cb.Reason, cb.FinishedAt = store.Poll, store.Succeeded, store.ResolvedOutside, nowMS
	return store.ResolvedPoll{Result: store.ResolveDone, Callback: cb}, e.noted("ResolvePoll", project, id, by, r)
}

func (e *engine) Poll(_ context.Context, project, id string) (dispatch.PollView, error) {
	if id != bareID {
		return dispatch.PollView{}, store.ErrNotFound
	}
	return e.poll, e.noted("Poll", project, id, store.Actor{}, nil)
}
