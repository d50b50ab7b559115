package api

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/alert"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sink"
	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/web/query"
)

// createAlert handles POST /v1/alerts: 201 with the alert.
func (a *API) createAlert(ctx context.Context, c *gin.Context, who caller) error {
	ch, reason, err := readAlert(c, false)
	if err != nil {
		return err
	}
	return reply(a, c, http.StatusCreated, alertOf)(
		a.Engine.CreateAlert(ctx, who.Project, ch, who.By(reason)))
}

// patchAlert handles PATCH /v1/alerts/{id}.
func (a *API) patchAlert(ctx context.Context, c *gin.Context, who caller, id string) error {
	ch, reason, err := readAlert(c, true)
	if err != nil {
		return err
	}
	return reply(a, c, http.StatusOK, alertOf)(
		a.Engine.PatchAlert(ctx, who.Project, id, ch, who.By(reason)))
}

// readAlert reads an alert and a reason. Invalid fields are in the change's Invalid. The engine checks what
// the values mean.
func readAlert(c *gin.Context, patch bool) (ch alert.Change, reason string, err error) {
	var (
		d decoder
		r client.AlertChange
	)
	d.custom = map[string]func(string, []byte){
		"when": func(name string, raw []byte) {
			if !isNull(raw) {
				ch.When = new(alert.When)
				readWhen(&d.fields, name, raw, ch.When)
			}
		},
		"sink": func(name string, raw []byte) {
			if isNull(raw) {
				return
			}
			var s client.AlertSink
			before := len(d.invalid)
			d.nested(name, raw, d.into(&s))
			if len(d.invalid) > before {
				return
			}
			ch.Sink = &sink.Config{
				Type: s.Type, URL: s.URL, Secret: s.Secret, Mentions: s.Mentions, Language: s.Lang,
				Server: s.Server, Username: s.Username, Password: s.Password, From: s.From, To: s.To,
			}
		},
		"digest": func(name string, raw []byte) {
			if isNull(raw) && !patch {
				return
			}
			var digest client.AlertDigest
			d.nested(name, raw, d.into(&digest))
			ch.Digest = &alert.Digest{At: digest.At, Timezone: digest.Timezone}
		},
	}
	if err := d.read(c, false, &r); err != nil {
		return ch, "", err
	}
	ch.Name, ch.Enabled, ch.Invalid = r.Name, r.Enabled, d.invalid
	if until, ok := r.SilenceUntil.Get(); ok {
		ch.SilenceUntil = new(until.UnixMilli())
	} else if patch && r.SilenceUntil.IsNull() {
		ch.SilenceUntil = new(int64)
	}
	return ch, r.Reason, nil
}

// readWhen decodes a condition. Above is a number or a duration.
func readWhen(f *fields, name string, raw []byte, w *alert.When) {
	f.nested(name, raw, func(key, value []byte) bool {
		name := string(key)
		switch name {
		case "kind":
			set(f, name, value, &w.Kind, decodeLine)
		case "above":
			if value[0] == '"' {
				f.duration(name, value, &w.AboveTime)
			} else {
				setPointer(f, name, value, &w.AboveCount, decodeInteger)
			}
		case "below":
			setPointer(f, name, value, &w.Below, decodeNumber)
		case "for":
			f.duration(name, value, &w.For)
		case "window":
			f.duration(name, value, &w.Window)
		case "min_attempts":
			setPointer(f, name, value, &w.MinAttempts, decodeInteger)
		case "endpoint":
			set(f, name, value, &w.Endpoint, decodeLine)
		case "lane":
			set(f, name, value, &w.Lane, decodeLine)
		case "schedule":
			set(f, name, value, &w.Schedule, decodeLine)
		default:
			return false
		}
		return true
	})
}

// listAlerts handles GET /v1/alerts.
func (a *API) listAlerts() handler {
	parse := func(q *query.Values) reader[alert.View] {
		f := store.AlertFilter{Search: q.One("search")}
		return func(ctx context.Context, who caller, after store.Cursor, limit int) ([]alert.View, error) {
			f.After, f.Limit = after.ID, limit
			return a.Engine.Alerts(ctx, who.Project, f)
		}
	}
	at := func(v *alert.View) store.Cursor { return store.Cursor{ID: v.ID} }
	return listOf(a, query.ListAlerts, parse, at, alertOf)
}

// alertOf converts an alert. Its sink is masked.
func alertOf(v *alert.View) client.Alert {
	out := client.Alert{
		ID: store.AlertPrefix + v.ID, Name: v.Name, When: whenOf(&v.When), State: v.State,
		Since: moment(v.Since), Firing: v.Firing, SilenceUntil: moment(v.SilenceUntil),
		Digest: client.Null[client.AlertDigest](), Enabled: v.Enabled,
		LastMessageAt: moment(v.SentAt), LastMessageID: prefixed(store.CallbackPrefix, v.SentID),
		LastMessageState: client.State(v.SentState),
		LastError:        v.LastError, CreatedAt: moment(v.CreatedAt), UpdatedAt: moment(v.UpdatedAt),
	}
	if !v.Silenced {
		out.SilenceUntil = time.Time{}
	}
	if v.DigestAt != "" {
		out.Digest = client.Set(client.AlertDigest{At: v.DigestAt, Timezone: v.DigestZone})
	}
	// A damaged row shows an empty sink.
	if err := json.Unmarshal([]byte(v.SinkMasked), &out.Sink); err != nil {
		out.Sink = client.AlertSink{}
	}
	return out
}

// whenOf converts a condition. It has the fields of its kind.
func whenOf(w *store.AlertWhen) client.AlertWhen {
	out := client.AlertWhen{
		Kind: string(w.Kind), For: duration(w.For), MinAttempts: w.MinAttempts, Below: w.Below,
		Endpoint: prefixed(store.EndpointPrefix, w.Endpoint), Lane: w.Lane,
		Schedule: prefixed(store.SchedulePrefix, w.Schedule),
	}
	if w.Window != 0 {
		out.Window = duration(w.Window)
	}
	switch r, _ := alert.RuleOf(w.Kind); r.Unit {
	case alert.Duration:
		out.Above = client.Amount(duration(time.Duration(w.Above) * time.Millisecond))
	case alert.Count:
		out.Above = client.Amount(strconv.FormatInt(w.Above, 10))
	}
	return out
}

// firingsOf converts the firings of an alert, newest first. There are few, so the response has all of them.
func firingsOf(firings *[]store.AlertFiring) map[string][]client.AlertFiring {
	return map[string][]client.AlertFiring{
		"data": each(*firings, func(r *store.AlertFiring) client.AlertFiring {
			return client.AlertFiring{
				Name: r.Name, PendingSince: moment(r.PendingSince), FiredAt: moment(r.FiredAt),
				ResolvedAt: moment(r.ResolvedAt),
			}
		}),
	}
}
