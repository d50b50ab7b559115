package cli

import (
	"fmt"

	"github.com/seed-ff5a32d8/dispatcher/client"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// SecretsCommand is what concerns the secrets of a project, and what encrypts those of all.
type SecretsCommand struct {
	Get       secretsGet       `cmd:"" help:"Print the project's own secret of a use."`
	Rotate    secretsRotate    `cmd:"" help:"Give the project a new secret; the old one signs beside it for a while."`
	Reencrypt secretsReencrypt `cmd:"" help:"Re-encrypt what is stored with the first master key."`
}

// secretsGet prints a project's secret.
type secretsGet struct {
	Use     string `in:"use" arg:"" help:"What it is for: text (bearer), basic, rsa or ed25519."`
	Private bool   `help:"Of a key pair: the private key, which signs."`
	answerFlags
}

// Run prints it.
func (cmd *secretsGet) Run(c *session) error {
	return ask(c, get("/v1/secret?"+queryOf(cmd).Encode()), printSecret(c, cmd.Private))
}

// secretsRotate makes or takes a project's secret.
type secretsRotate struct {
	Use     string   `in:"use" arg:"" optional:"" help:"What it is for: text (bearer), basic, rsa or ed25519. Without it: the root secret, from which those of lanes are derived."`
	Secret  string   `in:"secret,secret" placeholder:"TEXT|@FILE|-" help:"The new one; better in a file, or on the standard input with -, than where other users of this machine see it. Default: one is made."`
	Hosts   []string `in:"hosts" placeholder:"HOST,..." help:"Hosts that it may be sent to or sign for, such as api.bank.example or api.bank.example:8443; * for a private key that may sign for all."`
	Label   string   `in:"label" placeholder:"TEXT" help:"What receivers know it by, such as a certificate's serial number."`
	Overlap string   `in:"overlap" placeholder:"DURATION" help:"How long the old one signs beside it, 24h without it. 0s: not at all, for one that leaked."`
	changeFlags
}

// Run rotates.
func (cmd *secretsRotate) Run(c *session) error {
	return ask(c, post("/v1/secret/rotate", cmd), func(s *client.RotatedSecret) {
		fmt.Fprintf(c.Err, "the project has a new secret; %s\n", oldSecret(s, ""))
		if s.ShownSecret != nil && s.Secret != "" { // the root secret is not shown
			printSecret(c, false)(s.ShownSecret)
		}
	})
}

// secretsReencrypt changes the master key of everything that is stored.
type secretsReencrypt struct {
	serverFlags
	Reason string `in:"reason" placeholder:"TEXT" help:"Why, for the audit."`
	JSON   bool   `name:"json" help:"Print what was done for machines."`
}

// Help is what secrets reencrypt --help says below the flags' summary.
func (*secretsReencrypt) Help() string {
	return "To change the master key: give every process the old key and then the new one (master_key: old,new); then the new one " +
		"first (new,old); run this until nothing is left; then give the new one alone. It needs the admin key of the settings, " +
		"goes on while the server works, and may be run again at any time."
}

// Run asks for one step after the other.
func (cmd *secretsReencrypt) Run(c *session) error {
	if err := c.connect(); err != nil {
		return err
	}
	var sum, step client.Reencryption
	var bar *console.Drawing
	tracker := &console.Tracker{Message: "encrypted rows"}
	if c.ErrTerminal && !cmd.JSON {
		bar = c.NewDrawing(c.Err)
		bar.AppendTracker(tracker)
		bar.Begin()
	}
	err := error(nil)
	for more := true; more && err == nil; more = step.Next != "" {
		in := struct {
			From   string `json:"from,omitempty"`
			Reason string `json:"reason,omitempty"`
		}{step.Next, cmd.Reason}
		step = client.Reencryption{}
		if _, err = c.call(post("/v1/secret/reencrypt", in), &step); err == nil {
			sum.KeyID, sum.Left = step.KeyID, step.Left
			sum.Done, sum.Failed = sum.Done+step.Done, sum.Failed+step.Failed
			tracker.UpdateTotal(int64(sum.Done + sum.Left))
			tracker.SetValue(int64(sum.Done))
		}
	}
	if bar != nil {
		console.EndTracker(tracker, err != nil)
		bar.End()
	}
	if err != nil {
		return err
	}
	return showReencryption(c, &sum, cmd.JSON)
}

// showReencryption says what was done. Rows that could not be decrypted are an error.
func showReencryption(c *session, r *client.Reencryption, asJSON bool) error {
	if asJSON {
		if err := console.PrintValue(c.Console, struct {
			KeyID  string `json:"key_id"`
			Done   int    `json:"done"`
			Failed int    `json:"failed"`
			Left   int    `json:"left"`
		}{r.KeyID, r.Done, r.Failed, r.Left}); err != nil {
			return err
		}
	} else {
		c.printf("%d rows were re-encrypted with master key %s, %d are left\n", r.Done, r.KeyID, r.Left)
	}
	if r.Failed > 0 {
		return fmt.Errorf("%d rows could not be decrypted: keep the older master keys in the list, and see the server's log", r.Failed)
	}
	return nil
}
