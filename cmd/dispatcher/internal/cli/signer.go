package cli

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/sign"
)

// SignerCommand explains the signers. It needs no server: all of this version know the same.
type SignerCommand struct {
	List signerList `cmd:"" help:"List the signers with their options and what their secrets are."`
}

// signerList lists signers.
type signerList struct {
	Name []string `arg:"" optional:"" help:"Only these."`
	JSON bool     `name:"json" help:"Print JSON for machines."`
}

// A toldSigner is a signer in JSON.
type toldSigner struct {
	Name    string       `json:"name"`
	About   string       `json:"about"`
	Secret  string       `json:"secret,omitempty"`
	Options []toldOption `json:"options"`
}

// A toldOption is one of its options.
type toldOption struct {
	Name    string          `json:"name"`
	About   string          `json:"about"`
	Default json.RawMessage `json:"default"`
	shown   string
}

// Run prints them.
func (cmd *signerList) Run(c *console.Console) error {
	for _, name := range cmd.Name {
		if !slices.Contains(sign.Names(), name) {
			return console.Wrong("there is no signer %q; \"dispatcher signer list\" shows all", name)
		}
	}
	var list []toldSigner
	for _, s := range sign.Infos() {
		if len(cmd.Name) > 0 && !slices.Contains(cmd.Name, s.Name) {
			continue
		}
		told := toldSigner{Name: s.Name, About: s.Description, Secret: secretsForm(&s), Options: []toldOption{}}
		for _, o := range s.Options {
			told.Options = append(told.Options, toldOption{o.Name, o.Description, json.RawMessage(optionDefault(o)), string(o.Default)})
		}
		list = append(list, told)
	}
	if cmd.JSON {
		encoder := json.NewEncoder(c.Out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(list)
	}
	for i := range list {
		showSigner(c, &list[i], i > 0)
	}
	return nil
}

// optionDefault returns an option's default as JSON; of the one that depends on another option, as text.
func optionDefault(o sign.Option) string {
	if json.Valid([]byte(o.Default)) {
		return string(o.Default)
	}
	quoted, err := json.Marshal(string(o.Default))
	if err != nil {
		return "null"
	}
	return string(quoted)
}

// secretsForm says how the secret that signs is written; empty: there is none.
func secretsForm(s *sign.Info) string {
	switch {
	case s.Name == sign.SortedKV:
		return "the key itself, 8 to 4096 characters; with alg rsa2 a private RSA key, PEM"
	case s.Use == sign.UseEd25519:
		return "a private key, whsk_ and base64; receivers verify with the public one, whpk_ and base64"
	case s.Use == sign.UseRSA:
		return "a private RSA key, PEM; receivers verify with the public one"
	case s.Use == sign.UseText:
		return "the token itself, 8 to 4096 characters"
	case s.Use == sign.UseBasic:
		return "user:password; it cannot be made here, but must be given"
	case s.Use == sign.UseHMAC:
		return "24 to 64 bytes, written whsec_ and base64"
	}
	return ""
}

func showSigner(c *console.Console, s *toldSigner, apart bool) {
	if apart {
		fmt.Fprintln(c.Out)
	}
	fmt.Fprintf(c.Out, "%s\n%s\n", c.Paint(s.Name, console.Bold), s.About)
	if s.Secret != "" {
		fmt.Fprintf(c.Out, "secret: %s\n", s.Secret)
	}
	if len(s.Options) == 0 {
		return
	}
	t := c.NewTable("option", "default", "")
	t.Wrap(2, 36)
	t.Wrap(3, 60)
	for _, o := range s.Options {
		t.Row(o.Name, o.shown, o.About)
	}
	t.Render()
}
