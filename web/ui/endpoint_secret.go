package ui

import (
	"strings"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// secretPage shows a signing secret, in the answer to the form that asked for it and nowhere else.
type secretPage struct {
	base
	FullID string
	// Say is what was done.
	Say    string
	Secret *dispatch.ShownSecret
	// Until is when the secret before it ceases to sign beside it; zero: there is none that does.
	Until int64
}

// showSecret answers with a secret. The texts are those of "endpoint.NAME.*".
func (u *UI) showSecret(r *request, full, name string, s *dispatch.ShownSecret, until int64) (*answer, error) {
	p := &secretPage{base: u.base(r, "endpoints", "endpoint.secret.title"), FullID: full, Say: r.lang.text("endpoint." + name + ".done"), Secret: s}
	if until > r.now {
		p.Until = until
	}
	return show("endpoint_secret", p)
}

func (u *UI) askRevealSecret(r *request) (*form, error) {
	f, _, err := u.endpointForm(r, "secret")
	if err != nil {
		return nil, err
	}
	f.Fields = []field{f.reasonField()}
	return f, nil
}

func (u *UI) revealSecret(r *request) (*answer, error) {
	id, err := r.bareID(store.EndpointPrefix)
	if err != nil {
		return nil, err
	}
	s, err := u.EndpointActs.RevealSecret(r.ctx, r.who.project, dispatch.SecretQuery{Endpoint: id}, r.by())
	if err != nil {
		return nil, err
	}
	return u.showSecret(r, store.EndpointPrefix+id, "secret", &s, 0)
}

func (u *UI) askRotateSecret(r *request) (*form, error) {
	f, _, err := u.endpointForm(r, "rotate")
	if err != nil {
		return nil, err
	}
	f.Fields = []field{
		{Name: "overlap", Kind: lineField, Label: f.T("endpoint.rotate.overlap"), Help: f.T("endpoint.rotate.overlap.help"), Suggest: "24h", Mono: true},
		{Name: "secret", Kind: textField, Label: f.T("endpoint.field.secret"), Help: f.T("endpoint.field.secret.help"), Mono: true, Rows: 3, Secret: true},
		{Name: "label", Kind: lineField, Label: f.T("endpoint.field.secret_label"), Help: f.T("endpoint.field.secret_label.help"), Mono: true},
		f.reasonField(),
	}
	return f, nil
}

func (u *UI) rotateSecret(r *request) (*answer, error) {
	id, err := r.bareID(store.EndpointPrefix)
	if err != nil {
		return nil, err
	}
	q := dispatch.Rotation{Secret: strings.TrimSpace(r.text("secret")), Label: r.value("label"), Reason: r.value("reason")}
	if text := r.value("overlap"); text != "" {
		d, err := schedule.ParseDuration(text)
		if err != nil {
			return nil, invalid("overlap", r.lang.text("form.duration"))
		}
		q.Overlap = &d
	}
	s, until, err := u.EndpointActs.RotateSecret(r.ctx, r.who.project, dispatch.SecretQuery{Endpoint: id}, q, r.by())
	if err != nil {
		return nil, err
	}
	return u.showSecret(r, store.EndpointPrefix+id, "rotate", &s, until)
}
