package ui

import (
	"context"
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch/control"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/secret"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

func (u *UI) endpointActs() []Route {
	enable := func(on bool) func(*request, string) error {
		return func(r *request, id string) error {
			ch := control.EndpointChange{Enabled: &on}
			_, err := u.Engine.PatchEndpoint(r.ctx, r.caller.Project, id, ch, r.by())
			return err
		}
	}
	pause, resume := pausing(u.Engine.PauseEndpoint)
	return actsOn(u, kind[*endpointRow]{
		path: "/endpoints/:id/", texts: "endpoint.", section: "endpoints", prefix: store.EndpointPrefix,
		find: func(r *request, id string) (*endpointRow, error) {
			ep, err := u.Store.Endpoint(r.ctx, r.caller.Project, id)
			return newEndpointRow(ep), err
		},
		begin: (*form).beginEndpoint,
	}, []actOn[*endpointRow]{
		{name: "edit", ask: u.askEditEndpoint, do: u.editEndpoint},
		{name: "pause", ask: askPause[*endpointRow], do: pause},
		{name: "resume", ask: u.askResumeEndpoint, do: resume},
		{name: "enable", ask: u.askEnableEndpoint, do: enable(true)},
		{name: "disable", do: enable(false)},
		{
			name: "delete", ask: u.askDeleteEndpoint, danger: true, respond: u.deleteEndpoint,
		},
		{
			name: "rotate", path: "rotate_secret", scope: store.ScopeAdmin, ask: (*form).askRotateSecret,
			respond: u.rotateSecret,
		},
		{name: "secret", scope: store.ScopeAdmin, respond: u.revealSecret},
		{name: "view_link", ask: (*form).askViewLink, respond: u.createViewLink},
		{name: "revoke_links", do: u.revokeViewLinks, danger: true},
	})
}

// beginEndpoint adds the facts of an endpoint to a form.
func (f *form) beginEndpoint(row *endpointRow) {
	f.addFacts("column.endpoint", row.Label, "endpoint.address", row.Address)
}

// askPause adds the fields for the end of a pause.
func askPause[T any](f *form, _ T) error {
	f.Fields = []field{
		f.askMono("for", "endpoint.pause.for", "30m"), f.askMoment("until", "endpoint.pause.until"),
	}
	return nil
}

// pausing returns the functions that pause and resume an object. pause resumes it if until is 0.
func pausing[T any](
	pause func(ctx context.Context, project, id string, until int64, by store.Actor) (T, error),
) (on, off func(*request, string) error) {
	to := func(r *request, id string, until int64) error {
		_, err := pause(r.ctx, r.caller.Project, id, until, r.by())
		return err
	}
	on = func(r *request, id string) error {
		until, err := r.pauseEnd()
		if err != nil {
			return err
		}
		return to(r, id, until)
	}
	return on, func(r *request, id string) error { return to(r, id, 0) }
}

func (u *UI) askResumeEndpoint(f *form, row *endpointRow) error {
	if row.PausedUntil > f.now && row.PauseReason != "" {
		f.addFacts("endpoint.pause.reason", row.PauseReason)
	}
	return u.backlogEffect("endpoint.resume.backlog")(f, row)
}

func (u *UI) askEnableEndpoint(f *form, row *endpointRow) error {
	if reason := row.DisabledReason; reason != "" {
		f.Facts = append(f.Facts, fact{
			Name: f.T("endpoint.disabled"), Value: f.Or("endpoint.disabled.", reason),
			Data: !f.Has("endpoint.disabled." + reason),
		})
	}
	return u.backlogEffect("endpoint.resume.backlog")(f, row)
}

// askDeleteEndpoint shows the number of open callbacks, and a warning if that many need an approval.
func (u *UI) askDeleteEndpoint(f *form, row *endpointRow) error {
	open, err := u.addBacklog(f, row, "endpoint.delete.backlog")
	if u.ApprovalAbove > 0 && open > int64(u.ApprovalAbove) {
		f.Warnings = append(f.Warnings, f.T("redrives.warn.approval"))
	}
	return err
}

// deleteEndpoint deletes an endpoint, or shows the redrive that does.
func (u *UI) deleteEndpoint(r *request, id string) (*response, error) {
	redrive, err := u.Engine.DeleteEndpoint(r.ctx, r.caller.Project, id, r.by())
	switch {
	case err != nil:
		return nil, err
	case redrive.ID != "":
		return u.redirectDone(r, Root+"/redrives/"+store.RedrivePrefix+redrive.ID, "redrives.begun")
	}
	return u.redirectDone(r, Root+"/endpoints", "endpoint.delete.done")
}

// backlogEffect returns an ask function that adds the number of the endpoint's open callbacks to the form's
// effects.
func (u *UI) backlogEffect(key string) func(f *form, row *endpointRow) error {
	return func(f *form, row *endpointRow) error {
		_, err := u.addBacklog(f, row, key)
		return err
	}
}

// addBacklog adds the number of the endpoint's open callbacks to the form's effects, and returns it. An
// endpoint without a lane has none.
func (u *UI) addBacklog(f *form, row *endpointRow, key string) (open int64, err error) {
	if row.LaneID == 0 {
		return 0, nil
	}
	lanes, err := u.lanesByKey(f.r, []string{row.LaneKey()})
	if lane := lanes[row.LaneKey()]; lane != nil {
		open = int64(lane.Open)
		f.Effects = append(f.Effects, f.T(key, "n", lane.Open))
	}
	return open, err
}

// testEndpoint sends a test callback and redirects to the callback's page.
func (u *UI) testEndpoint(r *request) (*response, error) {
	// The engine would report a missing endpoint as an invalid field. Here it is the object of the path: 404.
	ep, err := load(r, store.EndpointPrefix, u.Store.Endpoint)
	if err != nil {
		return nil, err
	}
	c, err := u.Engine.TestEndpoint(r.ctx, r.caller.Project, ep.ID, r.by())
	if err != nil {
		return nil, err
	}
	return u.redirectDone(r, Root+"/callbacks/"+store.CallbackPrefix+c.ID, "endpoint.test.done")
}

// secretPage shows a signing secret. Only the response to the form has it; no URL leads to this page.
type secretPage struct {
	base
	FullID string
	// Message says what was done.
	Message string
	Secret  *secret.RevealedSecret
	// Until is when the previous secret stops signing in addition to this one; zero if none does.
	Until int64
}

// showSecret returns the page of a secret. Its texts are "endpoint.NAME.*".
func (u *UI) showSecret(
	r *request, id, name string, s *secret.RevealedSecret, until int64,
) (*response, error) {
	p := &secretPage{base: u.base(r, "endpoints", "endpoint.secret.title"), FullID: store.EndpointPrefix + id}
	p.Message, p.Secret = p.T("endpoint."+name+".done"), s
	if until > r.now {
		p.Until = until
	}
	return show("endpoint_secret", p)
}

// revealSecret shows the signing secret. The engine records the read in the audit log.
func (u *UI) revealSecret(r *request, id string) (*response, error) {
	s, err := u.Engine.RevealSecret(r.ctx, r.caller.Project, control.SecretQuery{Endpoint: id}, r.by())
	if err != nil {
		return nil, err
	}
	return u.showSecret(r, id, "secret", &s, 0)
}

func (f *form) askRotateSecret(*endpointRow) error {
	secret := f.ask("secret", textField, "endpoint.field.secret")
	secret.Mono, secret.Rows, secret.Secret = true, 3, true
	f.Fields = []field{
		f.askMono("overlap", "endpoint.rotate.overlap", "24h"), secret,
		f.askMono("label", "endpoint.field.secret_label", ""),
	}
	return nil
}

// rotateSecret replaces the signing secret: with the given one, or with a new one if the field is empty. The
// old one signs too until the overlap ends.
func (u *UI) rotateSecret(r *request, id string) (*response, error) {
	overlap, err := r.duration("overlap")
	if err != nil {
		return nil, err
	}
	q := control.Rotation{
		Secret: strings.TrimSpace(r.text("secret")), Label: r.value("label"), Reason: r.value("reason"),
		Overlap: overlap,
	}
	of := control.SecretQuery{Endpoint: id}
	s, until, err := u.Engine.RotateSecret(r.ctx, r.caller.Project, of, q, r.by())
	if err != nil {
		return nil, err
	}
	return u.showSecret(r, id, "rotate", &s, until)
}
