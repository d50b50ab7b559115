package ui

import (
	"time"

	"github.com/seed-ff5a32d8/dispatcher/dispatch"
	"github.com/seed-ff5a32d8/dispatcher/schedule"
	"github.com/seed-ff5a32d8/dispatcher/store"
)

// A standing is one thing that is so of an endpoint or a lane: what holds it, that it fails, that all is well.
type standing struct {
	// Code is dispatch's word where that has one. Kind is the colour of the badge that says Text.
	Code, Kind, Text string
	// Since and Until are moments, zero: not known. Forever: until somebody ends it.
	Since, Until int64
	// Word is more of it in our words, Note what somebody wrote of it.
	Word, Note string
	// Cure says what can be done about it, and Act is the address of the form that does it, which ActText names. Empty: there is none.
	Cure, Act, ActText string
}

// slowFrom is how long the slowest twentieth of the attempts may take before an endpoint is called slow: a third of the time that an
// attempt mostly has.
const slowFrom = 5 * time.Second

// standings says how an endpoint stands, the most important first. There is always at least one.
func (b *base) standings(row *endpointRow) []standing {
	var all []standing
	lane := row.Lane
	if !row.Enabled {
		s := standing{
			Code: dispatch.BlockEndpointOff, Kind: "bad", Since: row.DisabledAt,
			Act: row.path("enable"), ActText: b.T("endpoint.enable.button"),
		}
		if key := "endpoint.disabled." + row.DisabledReason; b.Has(key) {
			s.Word = b.T(key)
		} else {
			s.Note = row.DisabledReason
		}
		all = append(all, s)
	}
	if row.PausedUntil > b.now {
		all = append(all, standing{
			Code: dispatch.BlockEndpointPaused, Kind: "warn", Since: row.PausedAt, Until: row.PausedUntil,
			Note: row.PauseReason, Act: row.path("resume"), ActText: b.T("endpoint.resume.button"),
		})
	}
	if lane != nil {
		for _, s := range b.laneRow(lane).Standings {
			if s.Code != dispatch.BlockEndpointOff && s.Code != dispatch.BlockEndpointPaused { // which are the endpoint's own
				all = append(all, s)
			}
		}
	}
	if row.FailingSince != 0 {
		all = append(all, standing{Code: "failing", Kind: "bad", Since: row.FailingSince})
	}
	if lane != nil && lane.State != nil && lane.State.Health == schedule.TimingOut || row.Figures.p95 >= float64(slowFrom.Milliseconds()) {
		all = append(all, standing{Code: "slow", Kind: "warn"})
	}
	switch {
	case len(all) > 0:
	case row.LastSuccessAt == 0 && row.LastFailureAt == 0 && row.Figures.Attempts == 0:
		all = append(all, standing{Code: "idle"})
	default:
		all = append(all, standing{Code: "ok", Kind: "good"})
	}
	for i := range all {
		b.word(&all[i])
	}
	return all
}

// laneStanding says what holds a lane, by the word that dispatch has for it.
func (b *base) laneStanding(v *dispatch.LaneView, hold dispatch.Block) standing {
	s := standing{Code: hold.Code, Kind: "warn", Since: hold.Since, Until: hold.Until}
	switch hold.Code {
	case dispatch.BlockLanePaused:
		s.Act, s.ActText = link("/lanes/resume", "key", v.Key), b.T("lanes.resume.button")
		if v.PausedUntil == v.OwnPause {
			s.Note = v.PauseReason
		}
	case dispatch.BlockEndpointPaused:
		if v.PausedUntil == v.EndpointPause {
			s.Note = v.PauseReason
		}
	case dispatch.BlockProjectPaused:
		s.Act, s.ActText = link("/system/resume"), b.T("banner.resume")
	case dispatch.BlockEndpointOff, dispatch.BlockSQLDown, dispatch.BlockNoWorker,
		dispatch.BlockIndexUnanswered:
		s.Kind = "bad"
	case dispatch.BlockBreakerOpen:
		s.Kind, s.Until = "bad", 0 // it ends with an answer, not with its next probe
	case dispatch.BlockRate, dispatch.BlockConcurrency:
		s.Kind = "busy"
	}
	b.word(&s)
	return s
}

// word puts a standing into the viewer's words.
func (b *base) word(s *standing) {
	s.Text = b.T("lanes.held." + s.Code)
	for _, prefix := range []string{"why.cure.", "endpoint.cure."} {
		if b.Has(prefix + s.Code) {
			s.Cure = b.T(prefix + s.Code)
		}
	}
}

// path is the address of an act on the endpoint.
func (row *endpointRow) path(act string) string { return Root + "/endpoints/" + row.FullID + "/" + act }

// Flight is how many attempts it has in flight, and may have at present; empty: that is not known.
func (row *endpointRow) Flight() string {
	if row.Lane == nil {
		return ""
	}
	return flightText(row.Lane.State)
}

// Limit is how many attempts it may ever have in flight; zero: that is not known.
func (row *endpointRow) Limit() int { return flightLimit(row.Lane) }

// Paused says whether somebody has paused it.
func (row *endpointRow) Paused(now int64) bool { return row.PausedUntil > now }

// policyText writes a policy as the form of an endpoint takes it: by its name, or the waits of one given whole.
func policyText(p store.PolicyChoice) string {
	if p.Given == nil {
		return p.Name
	}
	if len(p.Given.Tiers) == 0 {
		return "[]"
	}
	text := ""
	for i, wait := range p.Given.Tiers {
		if i > 0 {
			text += " "
		}
		text += schedule.FormatDuration(wait)
	}
	return text
}

// successText writes a success rule by its name, or the rule itself.
func successText(s store.Success) string {
	if s.Name != "" {
		return s.Name
	}
	return string(s.Rule)
}
