"""The stress and crash checker behind `manage.py check_relay`: write, kill relays, read the topic back, judge."""
