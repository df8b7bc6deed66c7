"""What people type: sign in, register, how many to buy."""

from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm, BaseUserCreationForm
from django.contrib.auth.models import User


class LoginForm(AuthenticationForm):
    """One answer for a wrong name, a wrong password and a closed account."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].widget.attrs |= {"autocapitalize": "none", "spellcheck": "false"}


class RegisterForm(BaseUserCreationForm):  # type: ignore[type-arg]
    class Meta(BaseUserCreationForm.Meta):
        model = User
        fields = ("username",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].widget.attrs |= {"spellcheck": "false"}


class BuyForm(forms.Form):
    quantity = forms.IntegerField(min_value=1, max_value=32767, required=False)

    def units(self) -> int | None:
        """The units asked for, 1 if none were named; None if it can't be a number of units."""
        return (self.cleaned_data["quantity"] or 1) if self.is_valid() else None
